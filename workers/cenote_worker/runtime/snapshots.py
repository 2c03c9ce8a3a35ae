"""Requests about snapshots: keep the state, go back to one that is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.execution.results import Rollback, StreamName
from cenote_worker.supervisor.channels.warden import MAX_LABEL
from cenote_worker.supervisor.frame_parser import RefusedReply
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import AuthorSession, JailRequest, Listener, Outcome
from cenote_worker.supervisor.supervisor import Supervisor

MOST_STEPS = 2**63
"""A step's number is below: what travels has room for no larger one."""

TIMEOUT = 60.0
"""Seconds that keeping a state, or going back to one, may take: a thousand times what a gigabyte takes."""


def check_label(label: str) -> None:
    """Raises UsageError for what names no snapshot."""
    if not isinstance(label, str) or len(label) > MAX_LABEL or not label.isprintable():
        raise UsageError(f"a label is a text of at most {MAX_LABEL} characters, all of them printable")


def check_target(to: int | str) -> None:
    """What a rollback may go back to. Raises UsageError."""
    if isinstance(to, str) and to:
        check_label(to)
    elif isinstance(to, bool) or not isinstance(to, int) or not 0 <= to < MOST_STEPS:
        raise UsageError(f"a kept state is named by the number of its step or by a label, not {to!r}")


def keeping(label: str, listener: Listener, seat: AuthorSession, step: int = 0) -> JailRequest:
    """Keeps the state as it is now. The listener gets a KeptReply, or UnavailableError with the reason.

    step: whose state it is, if not that of the one that ran last.
    """
    message = jail_pb2.Request()
    message.snapshot.label = utf8_text(label)
    return JailRequest(RequestKind.SNAPSHOT, message, _Kept(listener), timeout=TIMEOUT, step=step, seat=seat)


def going_back(
    to: int | str, listener: Listener, seat: AuthorSession, supervisor: Supervisor, key: str = ""
) -> JailRequest:
    """Keeps the state as it is now, if it can be, and then goes back. The listener gets a Rollback or an error.

    What is gone back to does not give way to what is kept of the present. key: of the return, for a successor of this
    process. Before that nothing has happened that cannot happen twice.
    """
    message = jail_pb2.Request()
    message.snapshot.SetInParent()
    then = _Then(to, _Until(listener, supervisor.hold((to,))), seat, supervisor, key)
    return JailRequest(RequestKind.SNAPSHOT, message, then, timeout=TIMEOUT, seat=seat)


class _Kept:
    """Turns a refusal into an error."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, RefusedReply):
            outcome = UnavailableError(f"the state cannot be kept: {outcome.message}")
        self._listener.done(outcome)


class _Until:
    """Lets go of what was needed for a request when that has come to its end."""

    def __init__(self, listener: Listener, let_go: Callable[[], None]) -> None:
        self._listener = listener
        self._let_go = let_go

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        self._let_go()
        self._listener.done(outcome)


class _Then:
    """Hears that the present state is kept, or why not, and goes back."""

    def __init__(
        self, to: int | str, listener: Listener, seat: AuthorSession, supervisor: Supervisor, key: str
    ) -> None:
        self._to = to
        self._listener = listener
        self._seat = seat
        self._supervisor = supervisor
        self._key = key

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            self._listener.done(outcome)
            return
        unkept = outcome.message if isinstance(outcome, RefusedReply) else ""
        label = self._to if isinstance(self._to, str) else ""
        request = JailRequest(
            RequestKind.ROLLBACK,
            jail_pb2.Request(),
            _Told(self._listener, unkept),
            timeout=TIMEOUT,
            step=0 if isinstance(self._to, str) else self._to,
            key=self._key,
            seat=self._seat,
            label=label,
        )
        self._supervisor.submit(request)


class _Told:
    """Adds what was found out before the rollback."""

    def __init__(self, listener: Listener, unkept: str) -> None:
        self._listener = listener
        self._unkept = unkept

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, Rollback):
            outcome = replace(outcome, unkept=self._unkept)
        self._listener.done(outcome)
