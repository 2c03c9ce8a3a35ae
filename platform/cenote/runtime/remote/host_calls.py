"""Calls of a distant jail to functions of this client: in from the line, to the desk, and their answers out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from cenote.runtime.inject.host_function_server import HostFunctionServer, HostResult
from cenote.runtime.inject.references import ObjectReference, Sealed
from cenote.runtime.remote.background import background
from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import CenoteError, ProtocolViolation, RuntimeClosedError, UsageError
from cenote_worker.execution.results import HostFailure, VariableInfo
from cenote_worker.supervisor.channels.host_calls import from_failure
from cenote_worker.supervisor.frame_parser import read_info
from cenote_worker.transport.content import Content, Holding
from cenote_worker.wire.chunking import Incoming, announce, inline
from cenote_worker.wire.results import from_info

FIRST: Final = 1 << 63
"""Host calls are numbered by the server, from here on."""


class FrameSender(Protocol):
    """Where answers go. Frames are dropped while it is broken."""

    def say(self, frame: runtime_pb2.ClientFrame, content: Content | None = None) -> None: ...


@dataclass(slots=True)
class _Asked:
    """One call, as the desk wants it. Owns its arguments."""

    id: int
    origin: int
    target: str
    method: str
    arguments: Content

    def close(self) -> None:
        self.arguments.close()


@dataclass(slots=True)
class _Answered:
    """An answer that the server has not acknowledged: kept in case that the line breaks, and what it names too."""

    frame: runtime_pb2.ClientFrame
    content: Content | None
    kept: ObjectReference | None


@dataclass(slots=True)
class _Upload:
    """A value of another place, for the platform to keep: the jail gets a handle to it."""

    content: Content
    info: VariableInfo


class RemoteCalls:
    """The calls of one session. On the background loop, but for the desk's work.

    hold: a right, for this client, to a reference that the server named. place: of the platform, as references
    have it. limit: bytes of one call's arguments.
    """

    def __init__(
        self,
        desk: HostFunctionServer,
        line: FrameSender,
        hold: Callable[[str], Awaitable[Holding]],
        *,
        place: str,
        limit: int,
    ) -> None:
        self._desk = desk
        self._line = line
        self._hold = hold
        self._place = place
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._arriving: dict[int, tuple[runtime_pb2.HostCallFrame, Incoming]] = {}
        self._running: set[int] = set()
        self._answered: dict[int, _Answered] = {}
        self._held: dict[str, list[ObjectReference]] = {}
        """What the jail has handles to."""

    def hear(self, frame: runtime_pb2.ServerFrame) -> bool:
        """Whether the frame was one of a host call's."""
        match frame.WhichOneof("body"):
            case "host_call":
                self._called(frame.call, frame.host_call)
            case "host_cancel":
                self._cancelled(frame.call)
            case "reference_dropped":
                self._dropped(frame.reference_dropped.reference)
            case "host_answered":
                self._acknowledged(frame.call)
            case "chunk" if frame.call >= FIRST:
                self._add(frame.call, frame.chunk)
            case _:
                return False
        return True

    def returned(self) -> None:
        """The line was broken and is there again: what may have been lost on it goes once more."""
        for number in list(self._arriving):
            self._forget(number)
        for answered in self._answered.values():
            self._line.say(answered.frame, answered.content)

    def ended(self) -> None:
        """The jail does not wait for an answer any more."""
        for number in list(self._running):  # the desk is the other authors' too
            self._cancelled(number)
        for number in list(self._arriving):
            self._forget(number)
        for number in list(self._answered):
            self._acknowledged(number)
        for reference in list(self._held):
            self._dropped(reference)

    # -- in --

    def _called(self, number: int, message: runtime_pb2.HostCallFrame) -> None:
        if number in self._running or number in self._answered:  # asked again after a broken line
            return
        try:
            if message.arguments.attached:
                self._arriving[number] = message, Incoming(message.arguments, self._limit)
            else:
                self._start(number, message, inline(message.arguments, self._limit))
        except (ProtocolViolation, OSError) as error:
            self._refuse(number, error)

    def _add(self, number: int, chunk: runtime_pb2.Chunk) -> None:
        if number not in self._arriving:  # cancelled or refused meanwhile
            return
        message, incoming = self._arriving[number]
        try:
            incoming.add(chunk.data)
            content = incoming.finish() if chunk.last else None
        except (ProtocolViolation, OSError) as error:
            self._forget(number)
            self._refuse(number, error)
            return
        if content is not None:
            del self._arriving[number]
            self._start(number, message, content)

    def _refuse(self, number: int, error: Exception) -> None:
        self._running.add(number)
        self._answer(number, HostFailure("RuntimeError", f"the client cannot take the arguments: {error}"))

    def _cancelled(self, number: int) -> None:
        self._forget(number)
        self._running.discard(number)
        self._desk.cancel(number)

    def _forget(self, number: int) -> None:
        arriving = self._arriving.pop(number, None)
        if arriving is not None:
            arriving[1].close()

    # -- carried out --

    def _start(self, number: int, message: runtime_pb2.HostCallFrame, arguments: Content) -> None:
        self._running.add(number)
        asked = _Asked(number, message.origin, message.target, message.method, arguments)
        if message.HasField("value"):
            background().spawn(self._call_with(asked, message.value))
        else:
            self._call(asked, None)

    async def _call_with(self, asked: _Asked, value: runtime_pb2.Shared) -> None:
        """The server holds the value for as long as the call lasts; what is given to a function may stay longer."""
        try:
            given = ObjectReference(await self._hold(value.reference), read_info(value.info))
        except CenoteError as error:
            asked.close()
            self._answer(asked.id, HostFailure("RuntimeError", str(error)))
            return
        if asked.id in self._running:
            self._call(asked, given)
        else:
            asked.close()

    def _call(self, asked: _Asked, given: ObjectReference | None) -> None:
        try:
            self._desk.call(asked, given, lambda result: self._done(asked.id, result))
        except RuntimeError as error:  # the desk was closed, or the process ends
            asked.close()
            self._answer(asked.id, HostFailure("RuntimeError", str(error)))

    def _done(self, number: int, result: HostResult) -> None:
        """On whichever thread carried the call out."""
        try:
            background().post(self._answer, number, result)
        except RuntimeClosedError:  # the process ends, and the line with it
            _close(result)

    # -- out --

    def _answer(self, number: int, result: HostResult | _Upload) -> None:
        if number not in self._running:
            _close(result)
        elif isinstance(result, Sealed) and self._is_elsewhere(result.reference):
            background().spawn(self._bring(number, result.reference, lambda content: content))
        elif isinstance(result, ObjectReference) and self._is_elsewhere(result):
            info = result.info
            background().spawn(self._bring(number, result, lambda content: _Upload(content, info)))
        else:
            self._running.discard(number)
            self._tell(number, result)

    async def _bring(
        self, number: int, reference: ObjectReference, made: Callable[[Content], Content | _Upload]
    ) -> None:
        """A value of this process or of another platform: it goes as it is."""
        result: HostResult | _Upload
        try:
            result = made(await self._loop.run_in_executor(None, reference.content))
        except (CenoteError, OSError, RuntimeError) as error:
            result = HostFailure("RuntimeError", str(error))
        self._answer(number, result)

    def _is_elsewhere(self, reference: ObjectReference) -> bool:
        try:
            return reference.holding.place != self._place
        except UsageError:  # released; `_tell` says so
            return False

    def _tell(self, number: int, result: HostResult | _Upload) -> None:
        frame = runtime_pb2.ClientFrame(call=number)
        answer, content = frame.host_answer, None
        try:
            if isinstance(result, HostFailure):
                answer.error.CopyFrom(from_failure(result))
            elif isinstance(result, Content):
                content = result if announce(answer.value, result) else None
            elif isinstance(result, _Upload):
                answer.upload.info.CopyFrom(from_info(result.info))
                content = result.content if announce(answer.upload.content, result.content) else None
            elif isinstance(result, Sealed):
                answer.sealed = utf8_text(result.reference.holding.id)
            else:
                answer.reference = self._kept_for_jail(result)
        except CenoteError as error:
            answer.error.type, answer.error.message = "RuntimeError", utf8_text(str(error))
        kept = result.reference if isinstance(result, Sealed) else None
        self._answered[number] = _Answered(frame, content, kept)
        self._line.say(frame, content)

    def _kept_for_jail(self, reference: ObjectReference) -> str:
        holding = reference.holding
        self._held.setdefault(holding.id, []).append(reference)
        return holding.id

    def _acknowledged(self, number: int) -> None:
        answered = self._answered.pop(number, None)
        if answered is not None and answered.content is not None:
            answered.content.close()

    def _dropped(self, reference: str) -> None:
        """The jail has one handle less. Its server held the value, and so did this client, in case it asks again."""
        kept = self._held.get(reference, [])
        if kept:
            kept.pop()
        if not kept:
            self._held.pop(reference, None)


def _close(result: HostResult | _Upload) -> None:
    """Closes a result that has no taker."""
    if isinstance(result, Content):
        result.close()
    elif isinstance(result, _Upload):
        result.content.close()
