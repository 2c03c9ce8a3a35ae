"""Which of the interpreter's events reach the listener of a step."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from cenote_worker.jail.tracking.files import audit_hook


@pytest.fixture
def heard() -> Iterator[list[str]]:
    events = list[str]()
    audit_hook.listen(lambda event, _: events.append(event))
    yield events
    audit_hook.listen(None)


def test_an_identity_is_no_event_for_a_step(heard: list[str]) -> None:
    """An import may ask for tens of thousands."""
    id(heard)
    with open(os.devnull, "rb"):
        pass
    assert "open" in heard
    assert "builtins.id" not in heard


@pytest.mark.parametrize(
    "event",
    ["os.remove", "os.listdir", "os.fork", "exec", "socket.connect", "os.kill", "sqlite3.connect", "fcntl.flock",
     "pickle.find_class", "sys._getframe", "shutil.chown"],
)  # fmt: skip
def test_what_a_step_reads_or_changes_is_heard(heard: list[str], event: str) -> None:
    sys.audit(event, "a", "b")
    assert event in heard
