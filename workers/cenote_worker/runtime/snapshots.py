"""Requests about snapshots: make a snapshot of the state, roll back to one."""

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
"""A step's number is below this: messages have no room for a larger one."""

TIMEOUT = 60.0
"""Seconds that a snapshot, or a rollback, may take: a thousand times what a gigabyte takes."""


def check_label(label: str) -> None:
    """Raises UsageError for an invalid label."""
    if not isinstance(label, str) or len(label) > MAX_LABEL or not label.isprintable():
        raise UsageError(f"a label is a text of at most {MAX_LABEL} characters, all of them printable")


def check_target(to: int | str) -> None:
    """Checks the target of a rollback. Raises UsageError."""
    if isinstance(to, str) and to:
        check_label(to)
    elif isinstance(to, bool) or not isinstance(to, int) or not 0 <= to < MOST_STEPS:
        raise UsageError(f"a kept state is named by the number of its step or by a label, not {to!r}")


def keeping(label: str, listener: Listener, seat: AuthorSession, step: int = 0) -> JailRequest:
    """Makes a snapshot of the present state. The listener gets a KeptReply, or UnavailableError with the reason.

    step: whose state it is, if not that of the one that ran last.
    """
    message = jail_pb2.Request()
    message.snapshot.label = utf8_text(label)
    return JailRequest(RequestKind.SNAPSHOT, message, _Kept(listener), timeout=TIMEOUT, step=step, seat=seat)


def going_back(
    to: int | str, listener: Listener, seat: AuthorSession, supervisor: Supervisor, key: str = ""
) -> JailRequest:
    """Makes a snapshot of the present state, if possible, and then rolls back. The listener gets a Rollback or an
    error.

    The target's snapshot is not dropped for that of the present. key: of the rollback, for a successor of this
    process. Everything before the rollback may happen twice without harm.
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
    """Unpins the snapshots that a request needed when the request has ended."""

    def __init__(self, listener: Listener, let_go: Callable[[], None]) -> None:
        self._listener = listener
        self._let_go = let_go

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        self._let_go()
        self._listener.done(outcome)


class _Then:
    """Waits for the snapshot of the present state, or the reason why there is none, and rolls back."""

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
    """Adds the reason for a missing snapshot to the outcome of the rollback."""

    def __init__(self, listener: Listener, unkept: str) -> None:
        self._listener = listener
        self._unkept = unkept

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, Rollback):
            outcome = replace(outcome, unkept=self._unkept)
        self._listener.done(outcome)
