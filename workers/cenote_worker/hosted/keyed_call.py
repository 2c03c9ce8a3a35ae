"""One request under a key of its client's choice: carried out once, heard by whoever comes with that key."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.results import StreamName
from cenote_worker.supervisor.requests import Listener, Outcome, Withdraw
from cenote_worker.transcript import Transcript

MAX_KEY = 200
"""Characters. What clients make up by chance has some thirty."""


def _nothing(_characters: int) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """What a request is known by when its client sends it again. Raises UsageError for one that is empty or endless.

    text: chosen by the client, unique in its runtime. heard: characters of the request's output that the client has.
    missed: called before any output if part of what follows those is not kept any more, with its length.
    """

    text: str
    heard: int = 0
    missed: Callable[[int], None] = _nothing

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise UsageError(f"a key is a text, not {self.text!r:.100}")
        if not 0 < len(self.text) <= MAX_KEY:
            raise UsageError(f"a key has 1 to {MAX_KEY} characters, not {len(self.text)}")


class KeyedCall:
    """The Listener of a request, which passes on what it hears to any number of others.

    settled: called with this call and its outcome, before anybody else hears of it. limit: characters of output that
    are kept for those who are yet to come.
    """

    def __init__(self, key: str, limit: int, settled: Callable[[KeyedCall, Outcome], None]) -> None:
        self.key = key
        self.transcript = Transcript(limit)
        self.outcome: Outcome | None = None
        self._settled = settled
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._withdraw: Withdraw | None = None

    def join(self, listener: Listener, key: RequestKey) -> None:
        """The listener gets what it has not heard at once, then the rest as it comes."""
        with self._lock:
            missing, pieces = self.transcript.after(key.heard)
            if missing:
                key.missed(missing)
            for stream, text in pieces:
                listener.output(stream, text)
            if self.outcome is None:
                self._listeners.append(listener)
            else:
                listener.done(self.outcome)

    def leave(self, listener: Listener) -> None:
        """The listener hears no more. The request goes on, heard or not."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def begun(self, withdraw: Withdraw | None) -> None:
        """The request is on its way; `withdraw` takes it back."""
        with self._lock:
            if self.outcome is None:
                self._withdraw = withdraw

    def withdraw(self, *, waiting: bool = True) -> None:
        """For all who listen: see Withdraw."""
        with self._lock:
            withdraw = self._withdraw if self.outcome is None else None
        if withdraw is not None:
            withdraw(waiting=waiting)

    # -- Listener --

    def output(self, stream: StreamName, text: str) -> bool:
        with self._lock:
            self.transcript.add(stream, text)
            # Each hears it, also behind one that cannot keep up.
            return all([listener.output(stream, text) for listener in self._listeners])

    def done(self, outcome: Outcome) -> None:
        try:
            self._settled(self, outcome)
        finally:
            with self._lock:
                self.outcome, self._withdraw = outcome, None
                listeners, self._listeners = self._listeners, []
                for listener in listeners:
                    listener.done(outcome)


def key_of(listener: Listener) -> str:
    """Empty for a request without a key."""
    return listener.key if isinstance(listener, KeyedCall) else ""


def nothing_ran(outcome: Outcome) -> bool:
    """Whether the request may be carried out after all, when its client comes again."""
    return isinstance(outcome, UnavailableError)
