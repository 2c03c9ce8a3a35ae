"""What a runtime notes of its requests, on the way to whoever waits for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Protocol

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import JailLostError
from cenote_worker.holding import HeldHere
from cenote_worker.results import ExecutionResult, StreamName
from cenote_worker.supervisor.edge import DoneReply, FileReply, RefusedReply, ValueReply
from cenote_worker.supervisor.requests import Listener, Outcome, SharedReply

Note = Callable[[Outcome], None]
"""Is called with what a request has come to."""


class Entry(Protocol):
    """A cell in the books of its platform. token: id of the one that it comes with."""

    token: str

    def admit(self) -> None:
        """Called before the cell is queued, once for each that was not sent before. Raises an error when nothing is
        to run.
        """

    def ended(self, outcome: Outcome) -> None:
        """The jail is done with the cell. Called before anything is made of its outcome that may fail."""


Admission = Callable[[str], AbstractContextManager[Entry | None]]
"""Makes the entry of a cell of this code, around what queues it; None where nothing is counted."""


def admit_all(_code: str) -> AbstractContextManager[None]:
    """An Admission."""
    return nullcontext()


class Noting:
    """Passes on what happens; notes the outcome first. The listener hears of it even if that cannot be noted."""

    def __init__(self, listener: Listener, note: Note) -> None:
        self._listener = listener
        self._note = note

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        try:
            self._note(outcome)
        finally:
            self._listener.done(outcome)


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


class Withdrawal:
    """Lets a deletion succeed, too, where only later jails have the name, which was put in: a cell has deleted it."""

    def __init__(self, listener: Listener, withdraw: Callable[[], bool]) -> None:
        self._listener = listener
        self._withdraw = withdraw

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        is_missing = isinstance(outcome, RefusedReply) and outcome.kind == jail_pb2.Refusal.UNKNOWN_NAME
        self._listener.done(DoneReply() if is_missing and self._withdraw() else outcome)


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
