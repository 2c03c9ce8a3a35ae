"""What a cell costs that binds many names grows with their number, not with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from tests.tracking.steps import Steps

from cenote_worker.tracking import album

pytestmark = pytest.mark.usefixtures("alone")


def test_what_is_done_for_each_of_many_names(in_process: Callable[[], Steps]) -> None:
    """Three times the names, three times the lines that run, those in loops once more for each turn."""
    few, many = (_lines_for(in_process(), names) for names in (100, 300))
    assert many < 4 * few


def _lines_for(steps: Steps, names: int) -> int:
    counted = 0

    def count(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal counted
        if frame.f_code.co_filename != album.__file__:
            return None
        counted += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        steps.good("\n".join(f"v{number} = {number}" for number in range(names)))
    finally:
        sys.settrace(before)
    return counted
