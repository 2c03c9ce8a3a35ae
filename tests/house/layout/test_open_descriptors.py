"""The suite's own count of descriptors: it waits for those that threads close later, and reports unclosed ones."""

from __future__ import annotations

import os
import threading

import pytest
from tests.support.descriptors import MEMORY, all_closed


def test_what_a_thread_closes_later_is_closed() -> None:
    """By any thread, at any time."""
    with all_closed(MEMORY):
        threading.Timer(0.1, os.close, (os.memfd_create("late"),)).start()


def test_what_nobody_closes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than allowed fails, the allowed number does not; nor does one of another kind."""
    monkeypatch.setattr("tests.waiting.PATIENCE", 0.2)
    left, kind = os.memfd_create("left-open"), f"{MEMORY}left-open"  # others of MEMORY come and go meanwhile
    with pytest.raises(AssertionError, match="did not come"), all_closed(kind):
        other = os.dup(left)
    with all_closed(kind, spare=1), all_closed("no kind:"):
        another = os.dup(left)
    for descriptor in (left, other, another):
        os.close(descriptor)
