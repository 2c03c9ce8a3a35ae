"""The line to one remote runtime: calls go out, answers come in, and a line that breaks is taken up again.

All of it runs on the background loop. Each attached client has one session, and keeps its name over all its lines, so
that the server can tell a call that is repeated from a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import grpc

from cenote.runtime.remote.call import Answer, Call, Output
from cenote.runtime.remote.channels import FINAL, authorization, meaning
from cenote.runtime.remote.outbox import Outbox
from cenote_proto.v1 import runtime_pb2
from cenote_proto.v1.runtime_pb2_grpc import RuntimeServiceStub
from cenote_security.errors import (
    CenoteError,
    OutcomeUnknownError,
    ProtocolViolation,
    RuntimeClosedError,
    UnavailableError,
)
from cenote_worker.content import Content
from cenote_worker.wire.failures import to_error

Stream = grpc.aio.StreamStreamCall[runtime_pb2.ClientFrame, runtime_pb2.ServerFrame]

VERSION: Final = 1
"""Of RuntimeService, as this client speaks it."""

PATIENCE: Final = 30.0
"""Seconds that a broken line may take to be taken up again before what waits on it is given up."""

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
"""Seconds between two tries, doubled each time."""

HANDSHAKE: Final = 10.0
"""Seconds for a server to say Welcome."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a runtime is served, and what opens it there."""

    runtime: str
    address: str
    credential: str


class Calls(Protocol):
    """What else arrives on the line: calls of the jail to this client."""

    def hear(self, frame: runtime_pb2.ServerFrame) -> bool:
        """Whether the frame was one of its own. Raises ProtocolViolation."""

    def returned(self) -> None:
        """The line was taken up again: answers that nobody acknowledged have to be sent once more."""

    def ended(self) -> None:
        """Nobody waits for answers any more."""


class Session:
    """See above. locate: where the runtime is now; asked before each try."""

    def __init__(
        self,
        locate: Callable[[], Awaitable[Place]],
        channel: Callable[[str], grpc.aio.Channel],
        author: str,
    ) -> None:
        self._locate = locate
        self._channel = channel
        self._author = author
        self._client = secrets.token_hex(16)
        self._numbers = 0
        self._calls: dict[int, Call] = {}
        self._outbox = Outbox()
        self._something = asyncio.Event()
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._runtime = ""
        self.hosts: Calls | None = None
        self.policy = runtime_pb2.Policy()
        self.ended: CenoteError | None = None
        """Set once: why nothing more can be asked on this session."""

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    async def open(self) -> None:
        """Waits for the first line. Raises what stands in its way."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="cenote-session")
        waiting = asyncio.create_task(self._connected.wait())
        await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.ended is not None:
            raise self.ended

    async def close(self) -> None:
        """Leaves the runtime. What still waits is told so."""
        self._end(RuntimeClosedError("this runtime was closed; make a new one"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    # -- asking --

    def call(
        self,
        frame: runtime_pb2.ClientFrame,
        settle: Callable[[Answer], None],
        *,
        limit: int,
        changes: bool = False,
        content: Content | None = None,
        output: Output | None = None,
    ) -> Call:
        """Sends a request; `settle` hears its answer. Takes the content over."""
        self._numbers += 1
        frame.call = self._numbers
        if changes:
            frame.key = secrets.token_hex(16)
        call = Call(frame=frame, settle=settle, limit=limit, changes=changes, content=content, output=output)
        if self.ended is not None:
            call.end(self.ended)
            return call
        self._calls[call.number] = call
        if self.connected:
            self._send(call)
        return call

    def say(self, frame: runtime_pb2.ClientFrame, content: Content | None = None) -> None:
        """Sends what has no answer. Dropped while the line is broken. The content is the caller's."""
        if self.connected:
            self._outbox.put(frame)
            if content is not None:
                self._outbox.put_content(frame.call, content)
            self._something.set()

    def withdraw(self, call: Call) -> None:
        """Nobody waits for the answer any more."""
        if self._calls.pop(call.number, None) is not None:
            self._outbox.forget(call.number)
            call.close()
            self.say(runtime_pb2.ClientFrame(call=call.number, withdraw=runtime_pb2.Withdraw()))

    def heard(self) -> None:
        """Listeners that were slow have caught up."""
        for call in self._calls.values():
            if call.slow:
                call.slow = False
                self._tell(call, now=True)

    @property
    def has_cell(self) -> bool:
        """Whether a cell of this client waits or runs."""
        return any(call.frame.HasField("cell") for call in self._calls.values())

    def _send(self, call: Call) -> None:
        self._outbox.put(call.again())
        if call.content is not None:
            self._outbox.put_content(call.number, call.content)
        self._something.set()

    def _tell(self, call: Call, *, now: bool = False) -> None:
        if (frame := call.to_tell(now=now)) is not None:
            self.say(frame)

    # -- the line --

    async def _run(self) -> None:
        """One line after the other, until one cannot be had."""
        try:
            patience = _Patience()
            while True:
                try:
                    await self._line(patience)
                except grpc.aio.AioRpcError as error:
                    if error.code() in FINAL or patience.over():
                        raise
                except (UnavailableError, TimeoutError):
                    if patience.over():
                        raise
                finally:
                    self._connected.clear()
                await patience.pause()
        except CenoteError as error:
            self._end(error)
        except grpc.aio.AioRpcError as error:
            self._end(meaning(error, self._runtime))
        except TimeoutError:
            self._end(UnavailableError("the platform accepts connections and says nothing; try again"))
        except Exception as error:
            self._end(
                UnavailableError(f"the line to the platform failed: {error!r}")
            )  # nobody may wait for ever
            raise

    async def _line(self, patience: _Patience) -> None:
        place = await self._locate()
        self._runtime = place.runtime
        stub = RuntimeServiceStub(self._channel(place.address))
        stream = stub.Attach(metadata=authorization(place.credential))
        try:
            await asyncio.wait_for(self._greet(stream, place.runtime), HANDSHAKE)
            patience.stands()
            self._take_up()
            async with contextlib.AsyncExitStack() as stack:
                writer = asyncio.create_task(self._write(stream))
                stack.callback(writer.cancel)
                await self._read(stream)
        finally:
            stream.cancel()

    async def _greet(
        self,
        stream: grpc.aio.StreamStreamCall[runtime_pb2.ClientFrame, runtime_pb2.ServerFrame],
        runtime: str,
    ) -> None:
        hello = runtime_pb2.Hello(
            oldest_version=VERSION,
            newest_version=VERSION,
            runtime=runtime,
            client=self._client,
            author=self._author,
        )
        await stream.write(runtime_pb2.ClientFrame(hello=hello))
        frame = await stream.read()
        if frame is grpc.aio.EOF:
            raise UnavailableError("the platform hung up before it said anything; try again")
        assert isinstance(frame, runtime_pb2.ServerFrame)
        if frame.HasField("failure"):
            raise to_error(frame.failure)
        if not frame.HasField("welcome"):
            raise ProtocolViolation("a server that does not say Welcome")
        self.policy = frame.welcome.policy

    def _take_up(self) -> None:
        self._outbox = Outbox()
        self._connected.set()
        for call in list(self._calls.values()):
            self._send(call)
        if self.hosts is not None:
            self.hosts.returned()

    async def _write(
        self, stream: grpc.aio.StreamStreamCall[runtime_pb2.ClientFrame, runtime_pb2.ServerFrame]
    ) -> None:
        with contextlib.suppress(
            grpc.aio.AioRpcError, asyncio.InvalidStateError
        ):  # the reader hears of it too
            while True:
                frame = self._outbox.take()
                if frame is None:
                    self._something.clear()
                    await self._something.wait()
                else:
                    await stream.write(frame)

    async def _read(self, stream: Stream) -> None:
        while isinstance(frame := await stream.read(), runtime_pb2.ServerFrame):
            try:
                self._hear(frame)
            except ProtocolViolation as violation:
                self._fail(frame.call, violation)
        raise UnavailableError("the platform hung up")

    def _hear(self, frame: runtime_pb2.ServerFrame) -> None:
        if self.hosts is not None and self.hosts.hear(frame):
            return
        call = self._calls.get(frame.call)
        if call is None:  # withdrawn
            return
        answer: Answer | None
        answer = to_error(frame.failure) if frame.HasField("failure") else call.hear(frame)
        if answer is None:
            self._tell(call)
        else:
            del self._calls[call.number]
            self._outbox.forget(call.number)
            call.end(answer)

    def _fail(self, number: int, error: CenoteError) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            self._outbox.forget(number)
            call.end(error)

    def _end(self, error: CenoteError) -> None:
        if self.ended is not None:
            return
        self.ended = error
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.end(_left_with(call, error, self._runtime))
        if self.hosts is not None:
            self.hosts.ended()


def _left_with(call: Call, error: CenoteError, runtime: str) -> CenoteError:
    """What a request is told whose answer will not come."""
    if call.changes and isinstance(error, UnavailableError):
        return OutcomeUnknownError(runtime, call.frame.key, str(error))
    return error


class _Patience:
    """How long to go on trying. Not for a first line: whoever waits for it wants an answer, not a repair."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until: float | None = 0.0
        self._pause = FIRST_PAUSE

    def stands(self) -> None:
        """There is a line; should it break, trying begins anew."""
        self._until = None
        self._pause = FIRST_PAUSE

    def over(self) -> bool:
        """Whether it is time to give up."""
        if self._until is None:
            self._until = self._loop.time() + PATIENCE
        return self._loop.time() >= self._until

    async def pause(self) -> None:
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
