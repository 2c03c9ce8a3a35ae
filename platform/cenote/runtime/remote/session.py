"""The calls of one client to one remote runtime, over as many streams as it takes.

A stream carries frames in the order of its outbox, and chunks of large contents between them. A call has a
listener, or is awaited on the loop of its session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

import grpc

from cenote.runtime.remote import calls
from cenote.runtime.remote.calls import FRAMES, Answer, PendingCall
from cenote.runtime.remote.channels import authorization, meaning
from cenote.runtime.remote.reconnection import PATIENCE, RetrySchedule, say_waiting, short
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import runtime_pb2
from cenote_proto.v1.runtime_pb2_grpc import RuntimeServiceStub
from cenote_security.errors import (
    CenoteError,
    NotAuthenticatedError,
    OutcomeUnknownError,
    ProtocolViolation,
    RuntimeClosedError,
    RuntimeLostError,
    UnavailableError,
    UnknownRuntimeError,
    UsageError,
)
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.jail_requests import as_error
from cenote_worker.supervisor.frame_parser import RefusedReply
from cenote_worker.transport.content import Content
from cenote_worker.wire.channels import MAX_MESSAGE
from cenote_worker.wire.chunking import chunks
from cenote_worker.wire.failures import to_error


class ClientFrameQueue:
    """Frames go first, so that an interrupt never waits behind a gigabyte; contents take turns, chunk by chunk."""

    def __init__(self) -> None:
        self._frames: deque[runtime_pb2.ClientFrame] = deque()
        self._contents: deque[tuple[int, int, Iterator[bytes]]] = deque()

    def put(self, frame: runtime_pb2.ClientFrame) -> None:
        self._frames.append(frame)

    def put_content(self, call: int, content: Content) -> None:
        """Chunks of a content whose frame was put before. The content must stay open until it is written."""
        self._contents.append((call, content.size, chunks(content)))

    def forget(self, call: int) -> None:
        """No more chunks of this call."""
        self._contents = deque(waiting for waiting in self._contents if waiting[0] != call)

    def take(self) -> runtime_pb2.ClientFrame | None:
        """What is to be written next; None when there is nothing."""
        if self._frames:
            return self._frames.popleft()
        if not self._contents:
            return None
        call, left, pieces = self._contents.popleft()
        data = next(pieces)
        left -= len(data)
        if left:
            self._contents.append((call, left, pieces))
        return runtime_pb2.ClientFrame(call=call, chunk=runtime_pb2.Chunk(data=data, last=not left))


Stream = grpc.aio.StreamStreamCall[runtime_pb2.ClientFrame, runtime_pb2.ServerFrame]

HANDSHAKE: Final = 10.0
"""Seconds for a server to say Welcome."""

LAST_WORDS: Final = 1.0
"""Seconds for a server to say why it ends a stream that cannot be written to, or to agree to its end."""


class RuntimeStream:
    """On the background loop. `greet` first, then `carry`; what is put meanwhile goes out in order."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = ClientFrameQueue()
        self._filled = asyncio.Event()
        self._finishing = False
        self.calls = 0
        """How many were sent on it."""

    def put(self, frame: runtime_pb2.ClientFrame, content: Content | None = None) -> None:
        """Sends a frame, then the content in chunks. That stays the caller's, and open until it is gone."""
        self._outbox.put(frame)
        if content is not None:
            self._outbox.put_content(frame.call, content)
        self._filled.set()

    def forget(self, call: int) -> None:
        """No more chunks of this call."""
        self._outbox.forget(call)

    def finish(self) -> None:
        """Nothing more will be put: the server is told so when the rest is out, and then ends the stream."""
        self._finishing = True
        self._filled.set()

    async def greet(self, hello: runtime_pb2.Hello) -> runtime_pb2.Welcome:
        """Raises UnavailableError, AioRpcError, or what the server says."""
        try:
            async with asyncio.timeout(HANDSHAKE):
                await self._stream.write(runtime_pb2.ClientFrame(hello=hello))
                frame = await self._stream.read()
        except TimeoutError:
            raise UnavailableError("the platform takes connections and says nothing; try again") from None
        except asyncio.InvalidStateError:  # the stream ended before a word was written; its status says why
            frame = await self._stream.read()
        if not isinstance(frame, runtime_pb2.ServerFrame):
            raise UnavailableError("the platform hung up before it said anything; try again")
        if frame.HasField("failure"):
            raise to_error(frame.failure)
        if not frame.HasField("welcome"):
            raise ProtocolViolation("a server that does not say Welcome")
        return frame.welcome

    async def carry(self, hear: Callable[[runtime_pb2.ServerFrame], None]) -> None:
        """Until the server ends the stream. Raises AioRpcError for how it did, and whatever `hear` raises."""
        reading = asyncio.create_task(self._read(hear))
        writing = asyncio.create_task(self._write())
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():  # what keeps the one from writing, the other hears in words
                await asyncio.wait((reading,), timeout=LAST_WORDS)
        finally:
            reading.cancel()
            writing.cancel()
            ends = await asyncio.gather(reading, writing, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, asyncio.InvalidStateError):
                raise end

    def cut(self) -> None:
        """Ends the stream at once. Cutting twice is fine."""
        self._stream.cancel()

    async def _read(self, hear: Callable[[runtime_pb2.ServerFrame], None]) -> None:
        while isinstance(frame := await self._stream.read(), runtime_pb2.ServerFrame):
            hear(frame)

    async def _write(self) -> None:
        while True:
            frame = self._outbox.take()
            if frame is not None:
                await self._stream.write(frame)
            elif self._finishing:
                await self._stream.write(runtime_pb2.ClientFrame(goodbye=runtime_pb2.Goodbye()))
                await self._stream.done_writing()
                return
            else:
                self._filled.clear()
                await self._filled.wait()


VERSION: Final = 1
"""Of RuntimeService, as this client speaks it."""

ROOM: Final = 1024
"""Bytes of a message that are left for what gRPC adds."""

CLOSED: Final = "this runtime was closed; make a new one"

_log = logging.getLogger("cenote.remote")


@dataclass(frozen=True, slots=True)
class ServedAt:
    """Where a runtime is served, and what opens it there. authority: see Channels.stream."""

    runtime: str
    address: str
    credential: str
    authority: str = ""


class HostCalls(Protocol):
    """What else arrives on the line: calls of the jail to this client."""

    def hear(self, frame: runtime_pb2.ServerFrame) -> bool:
        """Whether the frame was one of its own."""

    def returned(self) -> None:
        """The line was taken up again: answers that were not acknowledged must be sent once more."""

    def ended(self) -> None:
        """The server does not wait for answers any more."""


@dataclass(frozen=True, slots=True)
class _Break:
    """Why a line ended. final: another try would end the same way."""

    error: CenoteError
    final: bool

    @property
    def why(self) -> str:
        """In a few words."""
        why = short(str(self.error))
        return "the line to the runtime is broken" if why == "no connection" else why


class RuntimeSession:
    """See above. `open` first; `hosts` may be set before.

    locate: where the runtime is now; asked before each try. connect: a channel to there, for as long as it is needed.
    client: the name of this client, for the server. author, private: see Hello. wait: see RetrySchedule.
    """

    def __init__(
        self,
        locate: Callable[[], Awaitable[ServedAt]],
        connect: Callable[[str, str], AbstractContextManager[grpc.aio.Channel]],
        client: str,
        author: str = "",
        *,
        private: bool = False,
        wait: float = PATIENCE,
    ) -> None:
        self._wait = wait
        self._locate = locate
        self._connect = connect
        self._introduction = make(runtime_pb2.Hello, client=client, author=author, private=private)
        self._introduction.oldest_version = self._introduction.newest_version = VERSION
        self._loop = asyncio.get_running_loop()
        self._numbers = 0
        self._calls: dict[int, PendingCall] = {}
        self._line: RuntimeStream | None = None
        """While one stands."""
        self._decided = asyncio.Event()
        """There was a first line, or there will be none."""
        self._task: asyncio.Task[None] | None = None
        self._runtime = ""
        self._address = ""
        self.place: ServedAt | None = None
        """Where the latest line led to."""
        self.hosts: HostCalls | None = None
        self.welcome = runtime_pb2.Welcome()
        self.ended: CenoteError | None = None
        """Set once: why nothing more can be asked on this session."""

    async def open(self) -> None:
        """Waits for the first line. Raises what stands in its way."""
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name="cenote-session")
        await self._decided.wait()
        if self.ended is not None:
            raise self.ended

    async def close(self, why: str = CLOSED) -> None:
        """Leaves the runtime: cells of this client are taken back, what still waits is told why."""
        for call in reversed(self._calls.values()):  # else the end of what runs would let the next one begin
            self.say(runtime_pb2.ClientFrame(call=call.number, withdraw=runtime_pb2.Withdraw()))
        self._end(RuntimeClosedError(why))
        if self._task is None:
            return
        if self._line is not None:
            self._line.finish()
            await asyncio.wait((self._task,), timeout=LAST_WORDS)
        self._task.cancel()
        await asyncio.wait((self._task,))

    # -- asking --

    def call(self, call: PendingCall) -> None:
        """Sends a request; it hears its answer. Takes it over."""
        self._numbers += 1
        call.frame.call = self._numbers
        refusal = self.ended or _too_large(call)
        if refusal is not None:
            _settle(call, refusal)
            return
        self._calls[call.number] = call
        if self._line is not None:
            self._send(call, self._line)

    def say(self, frame: runtime_pb2.ClientFrame, content: Content | None = None) -> None:
        """Sends what has no answer. Dropped while the line is broken. The content is the caller's."""
        if self._line is not None:
            self._line.put(frame, content)

    def withdraw(self, call: PendingCall) -> None:
        """The caller does not wait for the answer any more."""
        if self._drop(call.number) is not None:
            call.close()
            self.say(runtime_pb2.ClientFrame(call=call.number, withdraw=runtime_pb2.Withdraw()))

    def heard(self) -> None:
        """Listeners that were slow have caught up."""
        for call in self._calls.values():
            if call.slow:
                call.slow = False
                self._tell(call, now=True)

    @staticmethod
    def _send(call: PendingCall, line: RuntimeStream) -> None:
        line.calls += 1
        line.put(call.again(line.calls), call.content)

    def _tell(self, call: PendingCall, *, now: bool = False) -> None:
        if (frame := call.to_tell(now=now)) is not None:
            self.say(frame)

    def _drop(self, number: int) -> PendingCall | None:
        call = self._calls.pop(number, None)
        if call is not None and self._line is not None:
            self._line.forget(number)
        return call

    # -- lines, one after the other --

    async def _run(self) -> None:
        patience = RetrySchedule(self._wait)
        while self.ended is None:
            end = await self._attempt(patience)
            if self.ended is not None:  # the caller of `close` waits for the end of this
                return
            pause = None if end.final else patience.broke(self._loop.time())
            if pause is None:
                self._end(end.error)
            else:
                say_waiting("the platform", patience, end.why)
                await asyncio.sleep(pause)

    async def _attempt(self, patience: RetrySchedule) -> _Break:
        try:
            place = await self._locate()
        except CenoteError as error:
            return _Break(error, final=not isinstance(error, UnavailableError))
        except Exception as error:  # noqa: BLE001  (no caller may wait for ever, whatever it is)
            return _fault(error)
        try:
            with self._connect(place.address, place.authority) as channel:
                await self._stand(channel, place, patience)
        except CenoteError as error:
            return _broken(error)
        except grpc.aio.AioRpcError as error:
            return _broken(meaning(error, place.address, known=True))
        except Exception as error:  # noqa: BLE001
            return _fault(error)
        return _broken(UnavailableError(f"the platform at {place.address} hung up"))

    async def _stand(self, channel: grpc.aio.Channel, place: ServedAt, patience: RetrySchedule) -> None:
        self._runtime, self.place = place.runtime, place
        stream = RuntimeServiceStub(channel).Attach(metadata=authorization(place.credential))
        line = RuntimeStream(stream)
        try:
            self._introduction.runtime = utf8_text(place.runtime)
            self.welcome = await line.greet(self._introduction)
            patience.stands(self._loop.time())
            self._take_up(line)
            await line.carry(self._hear)
        finally:
            self._line = None
            line.cut()

    def _take_up(self, line: RuntimeStream) -> None:
        self._line = line
        for call in self._calls.values():
            self._send(call, line)
        if self.hosts is not None:
            self.hosts.returned()
        self._decided.set()

    def _hear(self, frame: runtime_pb2.ServerFrame) -> None:
        if self.hosts is not None and self.hosts.hear(frame):
            return
        if not frame.call and frame.HasField("failure"):
            self._dismissed(frame.begun)
            return
        call = self._calls.get(frame.call)
        if call is None:  # withdrawn
            return
        answer: Answer | None
        try:
            answer = to_error(frame.failure) if frame.HasField("failure") else call.hear(frame)
        except ProtocolViolation as violation:
            answer = violation
        except OSError as error:  # no memory for what came
            answer = UnavailableError(f"this process cannot take the answer: {error}")
        if answer is None:
            self._tell(call)
        else:
            self._drop(call.number)
            _settle(call, answer)

    def _dismissed(self, begun: int) -> None:
        """Last words: the server hears nothing more on this line. The status of the stream says why."""
        self._line = None
        for call in self._calls.values():
            call.ended_behind(begun)

    def _end(self, error: CenoteError) -> None:
        if self.ended is not None:
            return
        self.ended = error
        self._decided.set()
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            _settle(call, _left_with(call, error, self._runtime))
        if self.hosts is not None:
            self.hosts.ended()


def _broken(error: CenoteError) -> _Break:
    """A line that could not be had, or ended. A runtime that has moved, and a capability that has expired, are worth
    another try: the gateway is asked first, and has the last word.
    """
    again = isinstance(error, UnavailableError | UnknownRuntimeError | NotAuthenticatedError)
    return _Break(error, final=not again)


def _fault(error: Exception) -> _Break:
    _log.error("a line to a platform failed", exc_info=error)
    return _Break(UnavailableError(f"the line to the platform failed: {error!r}"), final=True)


def _settle(call: PendingCall, answer: Answer) -> None:
    """The caller's event loop may be closed, or its listener may fail: the other calls go on."""
    try:
        call.end(answer)
    except Exception:  # noqa: BLE001
        _log.exception("an answer of a platform could not be delivered")


def _too_large(call: PendingCall) -> UsageError | None:
    size = call.frame.ByteSize()
    if size <= MAX_MESSAGE - ROOM:
        return None
    return UsageError(f"{size} bytes of names and descriptions are too much for one request; ask in several")


def _left_with(call: PendingCall, error: CenoteError, runtime: str) -> CenoteError:
    """What a request is told whose answer will not come."""
    if call.sent and isinstance(error, UnknownRuntimeError):  # it was there when this began
        return RuntimeLostError("it was removed, or its lease has run out, while this was under way")
    if call.changes and call.sent and not isinstance(error, UsageError | RuntimeLostError):
        return OutcomeUnknownError(runtime, call.frame.key, str(error))
    return error


async def put(session: RuntimeSession, injection: Injection, key: str, *, replace: bool) -> None:
    """Puts it into the runtime. Raises the error that says why it cannot be. key: as of any request."""
    frame, content = calls.injection(injection, replace=replace)
    frame.key = utf8_text(key)
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    call = PendingCall(frame=frame, settle=_settling(answered), limit=FRAMES, changes=True, content=content)
    session.call(call)
    given = await answered
    if isinstance(given, RefusedReply):
        raise as_error(given, ", ".join(injection.names))
    if isinstance(given, Exception):
        raise given


async def answer(
    session: RuntimeSession, frame: runtime_pb2.ClientFrame, *, changes: bool = False
) -> runtime_pb2.ServerFrame:
    """The one frame that is the answer. Raises the error that came instead."""
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    session.call(PendingCall(frame=frame, settle=_settling(answered), limit=FRAMES, changes=changes))
    given = await answered
    if isinstance(given, Exception):
        raise given
    return given if isinstance(given, runtime_pb2.ServerFrame) else runtime_pb2.ServerFrame()


def _settling(future: asyncio.Future[Answer]) -> Callable[[Answer], None]:
    """Gives the answer to the caller, if it still waits."""

    def settle(answer: Answer) -> None:
        if not future.done():
            future.set_result(answer)

    return settle
