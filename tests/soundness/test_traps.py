"""The traps themselves: each runs, and its patch makes a difference that would be missed."""

from __future__ import annotations

import pytest
from tests.soundness.trap import TRAPS, Trap

from cenote.runtime import PythonRuntime

SAME_EITHER_WAY = {"a silent store into an array", "a silent store into a list", "a seed set to what it was"}
"""A full run gives the same before and after: what must not happen is that an older value comes back."""


def _looked_at(cells: tuple[str, ...], look: str) -> tuple[str | None, list[str]]:
    with PythonRuntime() as runtime:
        printed = [runtime.execute(cell).stdout for cell in cells]
        result = runtime.execute(look)
    assert result.error is None
    return result.value, printed


def test_there_are_enough() -> None:
    """What is published counts on at least so many mechanisms, each with a name of its own."""
    assert len({trap.name for trap in TRAPS}) == len(TRAPS) >= 60


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_a_trap_would_catch_a_program_that_is_not_run_again(trap: Trap) -> None:
    """Its value or its output depends on the patch, through steps that the patch does not touch."""
    before = _looked_at(trap.cells, trap.look)
    after = _looked_at(trap.patched, trap.look)

    assert (trap.name in SAME_EITHER_WAY) == (before == after)
