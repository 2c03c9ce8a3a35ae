"""Processes beside a served namespace: one stream for each, forwarded both ways. On the server's loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import grpc.aio
from google.protobuf.message import DecodeError

from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import ProtocolViolation, UnavailableError
from cenote_worker.execution.programs import ProgramEnd, ProgramOrder
from cenote_worker.execution.results import StreamName
from cenote_worker.process.threads import Backlog
from cenote_worker.serving.listeners import post
from cenote_worker.serving.rights import Rights
from cenote_worker.serving.served_runtime import Client, ServedRuntime
from cenote_worker.supervisor.program import ProgramHandle
from cenote_worker.wire.programs import check_size, check_start, from_end, order_of, refusal

Context = grpc.aio.ServicerContext[runtime_pb2.ProcessInput, runtime_pb2.ProcessOutput]

ROOM: Final = 2**20
"""Bytes of output that may wait for the client before the process is made to wait."""

INPUT_ROOM: Final = 4 * 2**20
"""Bytes of input that may wait for the process. A client waits for InputTaken."""

MAX_SIGNAL: Final = 64


async def first_message(context: Context, patience: float) -> runtime_pb2.ProcessStart:
    """Raises ProtocolViolation, UsageError."""
    try:
        async with asyncio.timeout(patience):
            message = await _read(context)
    except TimeoutError:
        raise ProtocolViolation(f"nothing within {patience:g} s") from None
    if message is None:
        raise ProtocolViolation("a stream without a word")
    return check_start(message)


class ServedProcess:
    """One process and its stream."""

    def __init__(self, served: ServedRuntime, rights: Rights, context: Context) -> None:
        self._served = served
        self._rights = rights
        self._context = context
        self._filled = asyncio.Event()
        self._out = deque[runtime_pb2.ProcessOutput]()
        self._backlog = Backlog(ROOM)
        self._input = 0
        self._outcome: ProgramEnd | Exception | None = None
        self._handle: ProgramHandle | None = None

    async def carry(self, start: runtime_pb2.ProcessStart) -> None:
        """Runs until the process has ended, or its client has gone, which ends the process. Raises its failure."""
        handle = self._handle = await self._begun(order_of(start), self._client(start))
        hearing = asyncio.create_task(self._hear(handle))
        telling = asyncio.create_task(self._tell(handle))
        try:
            await asyncio.wait((hearing, telling), return_when=asyncio.FIRST_COMPLETED)
            if hearing.done() and not telling.done() and hearing.exception() is None:
                await asyncio.wait((telling,))
            await (telling if telling.done() else hearing)
        finally:
            handle.kill()
            handle.resume()
            for task in (hearing, telling):
                task.cancel()
            await asyncio.gather(hearing, telling, return_exceptions=True)
        self._served.used()

    def _client(self, start: runtime_pb2.ProcessStart) -> Client:
        client = self._served.client(start.client)
        if client is None or client.tenant != self._rights.tenant:
            raise UnavailableError("this client is not attached to the runtime; attach, then try again")
        return client

    async def _begun(self, order: ProgramOrder, client: Client) -> ProgramHandle:
        entry = self._served.books.cell(order.shown, self._rights.token) if order.shown else None
        hosted = client.hosted
        self._served.used()
        with self._served.at_hand() as is_there:
            if is_there and not self._served.held:
                return hosted.begin(order, self, entry=entry)
        begun: asyncio.Future[ProgramHandle] = self._served.loop.create_future()

        def done(future: asyncio.Future[ProgramHandle]) -> None:
            if begun.cancelled():  # the client has gone meanwhile
                if future.exception() is None:
                    future.result().kill()
            elif (error := future.exception()) is not None:
                begun.set_exception(error)
            else:
                begun.set_result(future.result())

        self._served.start(lambda: hosted.begin(order, self, entry=entry), done, at_once=True)
        return await begun

    # -- ProgramListener, on the reactor's thread --

    def started(self, pid: int) -> None:
        self._put(runtime_pb2.ProcessOutput(started=pid))

    def output(self, stream: StreamName, data: bytes) -> bool:
        out = runtime_pb2.ProcessOutput(stdout=data) if stream == "stdout" else None
        goes_on = self._backlog.add(len(data))
        self._put(out or runtime_pb2.ProcessOutput(stderr=data))
        return goes_on

    def ended(self, outcome: ProgramEnd | Exception) -> None:
        self._outcome = outcome
        post(self._served.loop, self._filled.set)

    def _put(self, message: runtime_pb2.ProcessOutput) -> None:
        self._out.append(message)
        post(self._served.loop, self._filled.set)

    # -- the stream --

    async def _tell(self, handle: ProgramHandle) -> None:
        try:
            while True:
                while (message := self._next(handle)) is not None:
                    await self._context.write(message)
                if self._outcome is not None and not self._out:
                    break
                self._filled.clear()
                if not self._out and self._outcome is None:
                    await self._filled.wait()
            if isinstance(self._outcome, ProgramEnd):
                await self._context.write(runtime_pb2.ProcessOutput(ended=from_end(self._outcome)))
        except grpc.aio.InternalError:  # a write to a peer that has hung up
            raise UnavailableError("the client has hung up") from None
        if isinstance(self._outcome, Exception):
            raise self._outcome

    def _next(self, handle: ProgramHandle) -> runtime_pb2.ProcessOutput | None:
        if not self._out:
            return None
        message = self._out.popleft()
        if (size := len(message.stdout) + len(message.stderr)) and self._backlog.take(size):
            handle.resume()
        return message

    async def _hear(self, handle: ProgramHandle) -> None:
        """Runs until the client sends nothing more, which has no effect. Raises ProtocolViolation, UsageError."""
        while (message := await _read(self._context)) is not None:
            match message.WhichOneof("body"):
                case "input":
                    self._write(handle, message.input)
                case "close_input":
                    handle.close_input()
                case "signal" if 0 < message.signal <= MAX_SIGNAL:
                    handle.signal(message.signal)
                case "resize":
                    check_size(message.resize)
                    handle.resize(message.resize.rows, message.resize.columns)
                case "kill":
                    handle.kill()
                case _:
                    raise ProtocolViolation("a process was told something unknown")

    def _write(self, handle: ProgramHandle, data: bytes) -> None:
        if self._input + len(data) > INPUT_ROOM:
            raise ProtocolViolation(f"more than {INPUT_ROOM} bytes of input wait")
        self._input += len(data)

        def taken(error: Exception | None) -> None:
            post(self._served.loop, self._taken, len(data), error)

        handle.write(data, taken)

    def _taken(self, size: int, error: Exception | None) -> None:
        self._input -= size
        self._put(runtime_pb2.ProcessOutput(taken=refusal(error)))


async def _read(context: Context) -> runtime_pb2.ProcessInput | None:
    """The next message, None at the end. Raises ProtocolViolation for a malformed one."""
    try:
        message = await context.read()
    except DecodeError:
        raise ProtocolViolation("a message that is none of a process's") from None
    return message if isinstance(message, runtime_pb2.ProcessInput) else None
