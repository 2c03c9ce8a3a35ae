"""A Listener that a test can wait on, and host functions that are not offered."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from tests.waiting import PATIENCE

from cenote_worker.execution.results import ExecutionResult, HostFailure, StreamName
from cenote_worker.supervisor.channels.host_calls import HostCall, HostCallChannel
from cenote_worker.supervisor.requests import Outcome


class Heard:
    """Collects its events. printed: all text; missing: characters that were reported as missing."""

    def __init__(self) -> None:
        self.printed = ""
        self.missing = 0
        self._news = threading.Condition()
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()

    def output(self, _stream: StreamName, text: str) -> bool:
        with self._news:
            self.printed += text
            self._news.notify_all()
        return True

    def missed(self, characters: int) -> None:
        self.missing += characters

    def done(self, outcome: Outcome) -> None:
        self._outcomes.put(outcome)

    def wait_for(self, text: str) -> None:
        """Waits until the text was printed."""
        with self._news:
            assert self._news.wait_for(lambda: text in self.printed, PATIENCE), self.printed

    def outcome(self) -> Outcome:
        return self._outcomes.get(timeout=PATIENCE)

    def result(self) -> ExecutionResult:
        outcome = self.outcome()
        assert isinstance(outcome, ExecutionResult), outcome
        return outcome

    @property
    def silent(self) -> bool:
        """Whether no outcome waits to be taken."""
        return self._outcomes.empty()


class NoHosts:
    """A HostHandler that offers nothing."""

    def call(self, line: HostCallChannel, call: HostCall) -> None:
        call.close()
        line.answer(call.id, HostFailure("AttributeError", "nothing is offered"))

    def cancel(self, _call_id: int) -> None:
        pass

    def release(self, _reference: int) -> None:
        pass

    def ended(self) -> None:
        pass
