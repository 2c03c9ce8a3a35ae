"""Calls of a distant jail to functions of this client: in from the line, to the desk, and their answers out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from cenote.runtime.host_desk import HostDesk, HostResult
from cenote.runtime.references import ObjectReference, Sealed
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import CenoteError, ProtocolViolation
from cenote_worker.content import Content
from cenote_worker.supervisor.host_line import HostFailure
from cenote_worker.wire.contents import Incoming, announce, inline

FIRST: Final = 1 << 63
"""Host calls are numbered by the server, from here on."""


class Line(Protocol):
    """Where answers go. Frames are dropped while it is broken."""

    def say(self, frame: runtime_pb2.ClientFrame, content: Content | None = None) -> None: ...


@dataclass(slots=True)
class _Asked:
    """One call, as the desk wants it. Owns its arguments."""

    id: int
    target: str
    method: str
    arguments: Content

    def close(self) -> None:
        self.arguments.close()


@dataclass(slots=True)
class _Answered:
    """An answer that the server has not acknowledged: kept in case that the line breaks."""

    frame: runtime_pb2.ClientFrame
    content: Content | None


class RemoteCalls:
    """The calls of one session. On the background loop, but for the desk's work.

    known: the reference that the server means, given its message. limit: bytes of one call's arguments.
    """

    def __init__(
        self, desk: HostDesk, line: Line, known: Callable[[runtime_pb2.Shared], ObjectReference], limit: int
    ) -> None:
        self._desk = desk
        self._line = line
        self._known = known
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._arriving: dict[int, tuple[runtime_pb2.HostCallFrame, Incoming]] = {}
        self._running: set[int] = set()
        self._answered: dict[int, _Answered] = {}
        self._held: dict[str, ObjectReference] = {}

    def hear(self, frame: runtime_pb2.ServerFrame) -> bool:
        """Whether the frame was one of a host call's. Raises ProtocolViolation."""
        match frame.WhichOneof("body"):
            case "host_call":
                self._called(frame.call, frame.host_call)
            case "host_cancel":
                self._running.discard(frame.call)
                self._desk.cancel(frame.call)
            case "reference_dropped":
                held = self._held.pop(frame.reference_dropped.reference, None)
                if held is not None:
                    held.release()
            case "host_answered":
                self._acknowledged(frame.call)
            case "chunk" if frame.call >= FIRST:
                self._add(frame.call, frame.chunk)
            case _:
                return False
        return True

    def returned(self) -> None:
        """The line was broken and is there again: what may have been lost on it goes once more."""
        for _, incoming in self._arriving.values():
            incoming.close()
        self._arriving.clear()
        for answered in self._answered.values():
            self._line.say(answered.frame, answered.content)

    def ended(self) -> None:
        """Nobody waits for an answer any more."""
        self._desk.ended()
        for number in list(self._answered):
            self._acknowledged(number)
        for held in self._held.values():
            held.release()
        self._held.clear()

    def _called(self, number: int, message: runtime_pb2.HostCallFrame) -> None:
        if number in self._running or number in self._answered:  # asked again after a broken line
            return
        if message.arguments.attached:
            self._arriving[number] = (message, Incoming(message.arguments, self._limit))
        else:
            self._start(number, message, inline(message.arguments, self._limit))

    def _add(self, number: int, chunk: runtime_pb2.Chunk) -> None:
        if number in self._running or number in self._answered:
            return
        if number not in self._arriving:
            raise ProtocolViolation("a chunk of no call")
        message, incoming = self._arriving[number]
        incoming.add(chunk.data)
        if chunk.last:
            del self._arriving[number]
            self._start(number, message, incoming.finish())

    def _start(self, number: int, message: runtime_pb2.HostCallFrame, arguments: Content) -> None:
        self._running.add(number)
        given = self._known(message.value) if message.HasField("value") else None
        asked = _Asked(number, message.target, message.method, arguments)
        self._desk.call(asked, given, lambda result: self._done(number, result))

    def _done(self, number: int, result: HostResult) -> None:
        """On whichever thread carried the call out."""
        answer, content, held = _answer(result)
        self._loop.call_soon_threadsafe(self._answer, number, answer, content, held)

    def _answer(
        self,
        number: int,
        answer: runtime_pb2.HostAnswer,
        content: Content | None,
        held: ObjectReference | None,
    ) -> None:
        if number not in self._running:
            if content is not None:
                content.close()
            return
        self._running.discard(number)
        if held is not None:
            self._held[held.holding.id] = held
        frame = runtime_pb2.ClientFrame(call=number, host_answer=answer)
        self._answered[number] = _Answered(frame, content)
        self._line.say(frame, content if answer.value.attached else None)

    def _acknowledged(self, number: int) -> None:
        answered = self._answered.pop(number, None)
        if answered is not None and answered.content is not None:
            answered.content.close()


def _answer(
    result: HostResult,
) -> tuple[runtime_pb2.HostAnswer, Content | None, ObjectReference | None]:
    """The message, what follows it, and what this client has to hold for as long as the jail refers to it."""
    answer = runtime_pb2.HostAnswer()
    if isinstance(result, HostFailure):
        answer.error.type, answer.error.message = result.type, result.message
        return answer, None, None
    if isinstance(result, Content):
        announce(answer.value, result)
        return answer, result, None
    reference = result.reference if isinstance(result, Sealed) else result
    try:
        holding = reference.holding
        if not holding.place:
            return _sealed_here(answer, result, reference)
    except CenoteError as error:
        answer.error.type, answer.error.message = "RuntimeError", str(error)
        return answer, None, None
    if isinstance(result, Sealed):
        answer.sealed = holding.id
    else:
        answer.reference = holding.id
    return answer, None, reference


def _sealed_here(
    answer: runtime_pb2.HostAnswer, result: Sealed | ObjectReference, reference: ObjectReference
) -> tuple[runtime_pb2.HostAnswer, Content | None, ObjectReference | None]:
    if isinstance(result, ObjectReference):
        answer.error.type = "RuntimeError"
        answer.error.message = (
            "a reference of an embedded runtime stays on its machine; return the value instead"
        )
        return answer, None, None
    content = reference.content()
    announce(answer.value, content)
    return answer, content, None
