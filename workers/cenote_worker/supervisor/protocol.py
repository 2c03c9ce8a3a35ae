"""What a jail may say when: the state machine of one conversation. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from cenote_security.errors import ProtocolViolation
from cenote_worker.supervisor.frame_parser import (
    DoneReply,
    ExecutedReply,
    FileReply,
    FolderReply,
    JailEvent,
    KeptReply,
    ReadyEvent,
    RefusedReply,
    ReplyBody,
    ReplyEvent,
    SurveyedReply,
    ValueReply,
    VariablesReply,
    VersionsReply,
)


class RequestKind(Enum):
    """The kinds of request."""

    EXECUTE = auto()
    INJECT = auto()
    FETCH = auto()
    DELETE = auto()
    DESCRIBE = auto()
    LOOK_UP_FILES = auto()
    READ_FILE = auto()
    CHANGE_FILE = auto()
    SNAPSHOT = auto()
    ROLLBACK = auto()
    MAKE_CHECKPOINT = auto()
    RESTORE = auto()
    VERSIONS = auto()
    CARRY = auto()
    FORGET = auto()
    LOAD = auto()
    LEND = auto()


CALLS = frozenset(
    {
        RequestKind.INJECT,
        RequestKind.FETCH,
        RequestKind.DELETE,
        RequestKind.DESCRIBE,
        RequestKind.LOOK_UP_FILES,
        RequestKind.READ_FILE,
        RequestKind.CHANGE_FILE,
    }
)
"""Requests besides cells that a client makes directly; the others are parts of what it requests."""

CHANGES = frozenset(
    {
        RequestKind.INJECT,
        RequestKind.DELETE,
        RequestKind.CHANGE_FILE,
        RequestKind.CARRY,
        RequestKind.FORGET,
        RequestKind.LOAD,
    }
)
"""Requests besides cells that change the state."""

NUMBERED = CHANGES | {RequestKind.SNAPSHOT}
"""Requests that may give the state another number."""


class Phase(Enum):
    STARTING = auto()
    IDLE = auto()
    BUSY = auto()
    ENDED = auto()


_ANSWERS: dict[RequestKind, tuple[type, ...]] = {
    RequestKind.EXECUTE: (ExecutedReply,),
    RequestKind.INJECT: (DoneReply, RefusedReply),
    RequestKind.FETCH: (ValueReply, RefusedReply),
    RequestKind.DELETE: (DoneReply, RefusedReply),
    RequestKind.DESCRIBE: (VariablesReply, RefusedReply),
    RequestKind.LOOK_UP_FILES: (FolderReply, RefusedReply),
    RequestKind.READ_FILE: (FileReply, RefusedReply),
    RequestKind.CHANGE_FILE: (DoneReply, RefusedReply),
    RequestKind.SNAPSHOT: (KeptReply, RefusedReply),
    RequestKind.ROLLBACK: (SurveyedReply,),
    RequestKind.MAKE_CHECKPOINT: (DoneReply, RefusedReply),
    RequestKind.RESTORE: (DoneReply, RefusedReply),
    RequestKind.VERSIONS: (VersionsReply, RefusedReply),
    RequestKind.CARRY: (DoneReply, RefusedReply),
    RequestKind.FORGET: (DoneReply, RefusedReply),
    RequestKind.LOAD: (DoneReply,),
    RequestKind.LEND: (DoneReply, RefusedReply),
}


@dataclass(frozen=True, slots=True)
class RequestLost:
    """A request that was never sent, or whose receiver was gone before it answered.

    step, severed, amiss: of the worker that answered instead; see Rollback.
    """

    severed: tuple[str, ...] = ()
    step: int = 0
    amiss: tuple[str, ...] = ()


class JailConversation:
    """One request at a time, one answer of the right kind to each, output whenever it comes."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self._ask: RequestKind | None = None
        self._number = 0
        self._probe = 0
        """Number of a probe that is sent after a request of which it is unknown whether it was sent."""
        self._asked = 0
        """No earlier supervisor has sent a probe with a higher number."""
        self._anew = False

    def take_up(self, number: int, ask: RequestKind | None, *, ready: bool, asked: int = 0) -> None:
        """Continues a conversation that another supervisor has begun. ask: of the request that is not answered yet.

        asked: no other supervisor has sent a probe with a higher number. Answers to their probes may still come.
        """
        self._number, self._ask, self._asked = number, ask, asked
        if ready:
            self.phase = Phase.IDLE if ask is None else Phase.BUSY

    def probe(self, beyond: int = 0) -> int:
        """Sends a probe after a request that may not have been sent: if the probe's answer comes first, it was not.

        May be called again, when the receiver of the probe is gone too. Then only the last answer counts. beyond: any
        number that an earlier supervisor, or this one, has used for a probe; these numbers are not recorded.
        """
        assert self.phase is Phase.BUSY
        self._probe = max(self._probe, self._number, beyond) + 1
        return self._probe

    def again(self) -> int:
        """Opens the running request again: an answer to an earlier try, which may still come, counts for nothing."""
        assert self.phase is Phase.BUSY
        self._anew = True
        self._number += 1
        return self._number

    def ask(self, kind: RequestKind) -> int:
        """Opens a request; returns its number. The jail must be idle."""
        assert self.phase is Phase.IDLE
        self.phase, self._ask = Phase.BUSY, kind
        self._number += 1
        return self._number

    def hear(self, event: JailEvent) -> ReplyBody | RequestLost | None:
        """Processes an event of the jail; returns the answer when it is one.

        Raises ProtocolViolation for anything that the jail may not send now.
        """
        if isinstance(event, ReadyEvent):
            if self.phase is not Phase.STARTING:
                raise ProtocolViolation("ready, a second time")
            self.phase = Phase.IDLE
            return None
        if self.phase in (Phase.STARTING, Phase.ENDED):
            raise ProtocolViolation("a frame before the jail was ready")
        return self._answer(event) if isinstance(event, ReplyEvent) else None

    def unsent(self) -> None:
        """The request that was just opened was never sent."""
        self.phase, self._ask, self._anew = Phase.IDLE, None, False

    def end(self) -> None:
        self.phase = Phase.ENDED

    def _answer(self, event: ReplyEvent) -> ReplyBody | RequestLost | None:
        if self._is_late(event):
            return None
        if self._probe and event.id == self._probe:
            return self._probed(event.body)
        if self.phase is not Phase.BUSY or self._ask is None:
            raise ProtocolViolation("an answer without a request")
        if event.id != self._number:
            raise ProtocolViolation("an answer to another request")
        if not isinstance(event.body, _ANSWERS[self._ask]):
            raise ProtocolViolation(f"a {type(event.body).__name__} in answer to {self._ask.name.lower()}")
        self._ask, self._anew = None, False
        if not self._probe:
            self.phase = Phase.IDLE
        return event.body

    def _is_late(self, event: ReplyEvent) -> bool:
        """Whether it is a permitted answer to something that is not waited for any more."""
        if self._anew and event.id < self._number:
            return True
        question = isinstance(event.body, SurveyedReply) and event.id != self._probe
        return question and self._number < event.id <= max(self._probe, self._asked)

    def _probed(self, body: ReplyBody) -> RequestLost | None:
        if not isinstance(body, SurveyedReply):
            raise ProtocolViolation(f"a {type(body).__name__} in answer to a survey")
        unanswered = self._ask is not None
        self._number, self._probe = self._probe, 0
        self.phase, self._ask = Phase.IDLE, None
        return RequestLost(body.severed, body.step, body.amiss) if unanswered else None
