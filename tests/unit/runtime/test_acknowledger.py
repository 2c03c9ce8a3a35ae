"""Outcomes of a durable runtime on their way to their listeners."""

from __future__ import annotations

from typing import Any

from tests.waiting import until

from cenote_worker.process.log_context import log_context, logged_about
from cenote_worker.runtime.state.acknowledger import Acknowledger
from cenote_worker.supervisor.frame_parser import DoneReply


class Listener:
    """Notes what lines of the log would be about. fails: afterwards."""

    def __init__(self, *, fails: bool = False) -> None:
        self.about: list[dict[str, str]] = []
        self._fails = fails

    def done(self, _outcome: object) -> None:
        self.about.append(logged_about())
        if self._fails:
            raise ValueError("of this test")


def test_an_outcome_is_passed_on_in_the_context_of_its_cell() -> None:
    """One that cannot be passed on is logged there, and keeps none from the others."""
    acknowledger: Any = Acknowledger(lambda _supervisor: (), lambda _key, _step: None)
    first, second = Listener(fails=True), Listener()
    for step, listener in (("1", first), ("2", second)):
        with log_context(runtime="rt_1", step=step):
            acknowledger.hold(listener, DoneReply(), lambda: None, "")
    until(lambda: len(second.about) == 1)
    assert [{"runtime": "rt_1", "step": "1"}] == first.about
    assert [{"runtime": "rt_1", "step": "2"}] == second.about
    acknowledger.close()
