"""What a log contains of work that fails again and again."""

from __future__ import annotations

import logging

import pytest

from cenote_worker.node.ray.actor_watch import ActorWatch
from cenote_worker.node.state_log import StateLog


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage().partition(";")[0] for record in caplog.records]
    caplog.clear()
    return said


def test_a_state_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever numbers and ids its errors have; another error is another state, and so is a recovery."""
    state = StateLog(logging.getLogger("cenote.test"), "nothing could be swept")
    state.worked()
    assert [] == lines(caplog)
    for number in range(5):
        state.failed(OSError(f"no answer of 10.0.0.{number}:6379 after {number} s"), expected=True)
    assert ["nothing could be swept: no answer of 10.0.0.0:6379 after 0 s"] == lines(caplog)
    state.failed(OSError("refused"), expected=True)
    assert ["nothing could be swept: refused"] == lines(caplog)
    state.worked()
    state.worked()
    assert ["nothing could be swept: that is over"] == lines(caplog)
    state.failed(OSError("refused"), expected=True)
    assert ["nothing could be swept: refused"] == lines(caplog)


def test_what_was_not_expected_has_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once as well."""
    state = StateLog(logging.getLogger("cenote.test"), "nothing could be swept")
    for _ in range(3):
        state.failed(ValueError(), expected=False)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "nothing could be swept: ValueError" in record.getMessage()


class Rounds:
    """An event that is set after some rounds."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def wait(self, _seconds: float) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_cluster_that_is_away_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often its processes are requested."""

    def away() -> dict[str, object]:
        raise ConnectionError("Ray's head is away")

    ActorWatch(away).run(Rounds(5))  # type: ignore[arg-type]
    assert ["no process could be asked whether it is there: Ray's head is away"] == lines(caplog)
