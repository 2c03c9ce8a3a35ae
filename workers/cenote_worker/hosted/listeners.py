"""What a runtime notes of its requests, on the way to whoever waits for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue

from cenote_security.errors import JailLostError
from cenote_worker.holding import HeldHere
from cenote_worker.results import ExecutionResult, StreamName
from cenote_worker.supervisor.edge import FileReply, RefusedReply, ValueReply
from cenote_worker.supervisor.requests import Listener, Outcome, SharedReply

Admit = Callable[[Listener], Listener]
"""Asked before a cell is queued, once for each that was not sent before. Gives who hears of it from then on; raises
what its sender is told when nothing is to run.
"""

Admission = Callable[[str], AbstractContextManager[Admit | None]]
"""What admits a cell of this code, around what queues it; None where nothing is counted."""


def admit_all(_code: str) -> AbstractContextManager[None]:
    """An Admission."""
    return nullcontext()


class Witness:
    """Passes on what happens; notes when its hearer learns that the jail is gone."""

    def __init__(self, listener: Listener, lost: Callable[[], None]) -> None:
        self._listener = listener
        self._lost = lost

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, JailLostError) or (
            isinstance(outcome, ExecutionResult) and outcome.state == "lost"
        ):
            self._lost()
        self._listener.done(outcome)


class Keeper:
    """Notes that an injection succeeded, or did not, before its caller hears of it."""

    def __init__(self, listener: Listener, keep: Callable[[], None], release: Callable[[], None]) -> None:
        self._listener = listener
        self._keep = keep
        self._release = release

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Exception | RefusedReply):
            self._keep()
        else:
            self._release()
        self._listener.done(outcome)


class Sharer:
    """Turns a fetched value into one that its hearer may hand on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, ValueReply):
            outcome = SharedReply(HeldHere(outcome.content), outcome.info)
        self._listener.done(outcome)


class Delivery:
    """Waits for an injection into a jail that is being filled."""

    def __init__(self) -> None:
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()

    def output(self, _stream: StreamName, _text: str) -> bool:
        return True

    def done(self, outcome: Outcome) -> None:
        self.outcomes.put(outcome)


class Unheard:
    """Of a request whose caller has gone. What it would own is closed."""

    def output(self, _stream: StreamName, _text: str) -> bool:
        return True

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, ValueReply | FileReply):
            outcome.content.close()
