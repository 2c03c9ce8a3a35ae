"""A request to a jail: its message, its listener, and the rollback of an atomic cell that failed.

The namespace of an atomic cell that failed first goes back to what it was; only then is the cell's result given.
For that the rollback is a request of its own, whose listener completes the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import JailLostError, RolledBackError
from cenote_worker.execution.results import (
    Built,
    ExecutionResult,
    Patched,
    RanInFull,
    Rollback,
    StreamName,
    VariableInfo,
)
from cenote_worker.supervisor.frame_parser import ReplyBody
from cenote_worker.supervisor.protocol import NUMBERED, RequestKind
from cenote_worker.transport.content import Holding


@dataclass(frozen=True, slots=True)
class SharedReply:
    """A value stored where any runtime can use it; the receiver owns the holding."""

    holding: Holding
    info: VariableInfo


Outcome = ExecutionResult | ReplyBody | Rollback | SharedReply | Patched | Built | RanInFull | Exception
"""A cell always gives a result; other requests give a reply, or the error to raise."""


class Listener(Protocol):
    """Observes one request. Called on the reactor's thread: must not block."""

    def output(self, stream: StreamName, text: str) -> bool:
        """Text as it comes. False when the listener cannot keep up: reading stops until `resume`."""

    def done(self, outcome: Outcome) -> None:
        """The last call."""


class Withdraw(Protocol):
    """Withdraws a request."""

    def __call__(self, *, waiting: bool = True) -> None:
        """Drops a request that waits, interrupts one that runs. waiting: False leaves one that waits where it is."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AuthorSession:
    """An author's session at a runtime. Two sessions of one author differ: neither interrupts the other's cells.

    author: empty for the owner. private: whether names mean the author's own, not the common ones.
    """

    author: str = ""
    private: bool = False


OWNER = AuthorSession()
"""The session of the client that created the runtime."""


@dataclass(slots=True, eq=False)
class JailRequest:
    """One request.

    message: with every payload filled in. descriptors: those sent with it, in the message's order.
    owned: called once when the request was sent or dropped, to close what was sent with it.
    timeout: seconds that the jail may take; None: no limit for a cell, the policy's limit for anything else.
    step: the cell's number, 0 for anything else.
    key: by which its client may ask for it. injection: the number of its injection, if that is stored.
    step and label of a rollback: its target. seat: the requester. overtaken: by how many later requests.
    code, cause and token of a cell: for the record. token: id of the token that it came with.
    undoes: the result of the cell that this rollback undoes.
    """

    ask: RequestKind
    message: jail_pb2.Request
    listener: Listener
    descriptors: list[int] = field(default_factory=list)
    owned: list[Callable[[], None]] = field(default_factory=list)
    timeout: float | None = None
    step: int = 0
    key: str = ""
    injection: int = 0
    seat: AuthorSession = OWNER
    overtaken: int = 0
    label: str = ""
    code: str = ""
    cause: str = ""
    token: str = ""
    undoes: ExecutionResult | None = None

    @property
    def has_output(self) -> bool:
        """Whether it is a cell, or the rollback of one, whose output a successor reports again. The answers of all
        other requests have no room for output."""
        return self.ask is RequestKind.EXECUTE or self.undoes is not None

    def address(self, number: int) -> None:
        """Fills in what the jail needs for any request. number: in its conversation."""
        self.message.id = number
        if self.seat is not OWNER:
            self.message.author, self.message.private = utf8_text(self.seat.author), self.seat.private
        if self.ask in NUMBERED:
            self.message.state = self.step

    def dispose(self) -> None:
        for close in self.owned:
            close()
        self.owned.clear()


_TIMEOUT: Final = 60.0
"""Seconds that a rollback may take: a thousand times what a gigabyte takes."""


def undo_request(request: JailRequest, result: ExecutionResult, before: int) -> JailRequest | None:
    """The rollback that must come before any other request, if the cell is to be undone. It gives the cell's result.

    before: the step that the namespace was at the end of when the cell began.
    """
    if not request.message.execute.atomic or result.success or result.unkept:
        return None
    return JailRequest(
        RequestKind.ROLLBACK,
        jail_pb2.Request(),
        UndoListener(request.listener, result),
        timeout=_TIMEOUT,
        step=before,
        key=request.key,
        seat=request.seat,
        code=request.code,
        cause=request.cause,
        token=request.token,
        undoes=result,
    )


@dataclass(frozen=True, slots=True)
class UndoListener:
    """Completes the cell's result with the outcome of the rollback, for the cell's listener. result: of the cell."""

    listener: Listener
    result: ExecutionResult

    def output(self, stream: StreamName, text: str) -> bool:
        return self.listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        self.listener.done(self._told(outcome))

    def _told(self, outcome: Outcome) -> ExecutionResult:
        match outcome:
            case Rollback(step=step, amiss=amiss):
                news = (*self.result.news, *amiss)
                return replace(self.result, state="rolled_back", back_at=step, news=news)
            # The worker that should have confirmed it has died of it, and another has replaced it.
            case RolledBackError(step=step):
                return replace(self.result, state="rolled_back", back_at=step)
            case JailLostError():
                return replace(self.result, state="lost")
        return replace(self.result, unkept=str(outcome), kept_as="")
