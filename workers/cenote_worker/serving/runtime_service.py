"""RuntimeService: authenticates the streams of clients and forwards them to their sessions and back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor

import grpc.aio
from google.protobuf.message import DecodeError

from cenote_proto.v1 import runtime_pb2
from cenote_proto.v1.runtime_pb2_grpc import RuntimeServiceServicer
from cenote_security.errors import CenoteError, ProtocolViolation, UnavailableError, UnknownRuntimeError
from cenote_worker.serving.auth_interceptor import refuse
from cenote_worker.serving.calls.call_parser import check_hello
from cenote_worker.serving.calls.session import ClientSession
from cenote_worker.serving.limits import NEWEST_VERSION, ServerTimeouts
from cenote_worker.serving.process_streams import Context as ProcessContext
from cenote_worker.serving.process_streams import ServedProcess, first_message
from cenote_worker.serving.rights import Authorise, Rights, bearer_token
from cenote_worker.serving.served_runtime import ServedRuntime
from cenote_worker.wire.failures import to_failure
from cenote_worker.wire.policies import from_policy

Context = grpc.aio.ServicerContext[runtime_pb2.ClientFrame, runtime_pb2.ServerFrame]

LAST_WORDS = 1.0
"""Seconds for a client to take the reason why its stream ends; the status has it, too."""


class RuntimeService(RuntimeServiceServicer):
    """The service of one server. runtimes: by id; changes as they are added and removed. pool: checks tokens."""

    def __init__(
        self,
        authorise: Authorise,
        runtimes: Mapping[str, ServedRuntime],
        pool: Executor,
        patience: ServerTimeouts,
    ) -> None:
        self._authorise = authorise
        self._runtimes = runtimes
        self._pool = pool
        self._patience = patience

    async def Attach(self, _request_iterator: object, context: Context) -> None:  # type: ignore[override]
        try:
            hello = await self._hello(context)
            token = bearer_token(context.invocation_metadata() or ())
            loop = asyncio.get_running_loop()
            rights = await loop.run_in_executor(self._pool, self._authorise, token, hello.runtime)
            await self._serve(hello, rights, context)
        except CenoteError as error:
            await refuse(context, error)

    async def RunProcess(  # type: ignore[override]
        self, _request_iterator: object, context: ProcessContext
    ) -> None:
        try:
            start = await first_message(context, self._patience.handshake)
            token = bearer_token(context.invocation_metadata() or ())
            loop = asyncio.get_running_loop()
            rights = await loop.run_in_executor(self._pool, self._authorise, token, start.runtime)
            rights.require("run")
            served = self._runtimes.get(start.runtime)
            if served is None:
                raise UnknownRuntimeError(start.runtime)
            await ServedProcess(served, rights, context).carry(start)
        except CenoteError as error:
            await refuse(context, error)

    async def _hello(self, context: Context) -> runtime_pb2.Hello:
        try:
            async with asyncio.timeout(self._patience.handshake):
                frame = await _read(context)
        except TimeoutError:
            raise ProtocolViolation(f"no Hello within {self._patience.handshake:g} s") from None
        if frame is None:
            raise ProtocolViolation("a stream without Hello")
        return check_hello(frame)

    async def _serve(self, hello: runtime_pb2.Hello, rights: Rights, context: Context) -> None:
        served = self._runtimes.get(hello.runtime)
        if served is None:
            raise UnknownRuntimeError(hello.runtime)
        stream = _Stream(context)
        session = ClientSession(served, rights, filled=stream.filled.set, drained=stream.drained.set)
        client, returning = served.attach(hello, rights.tenant, session)
        session.begin(client)
        try:
            policy = from_policy(served.hosted.policy)
            welcome = runtime_pb2.Welcome(version=NEWEST_VERSION, returning=returning, policy=policy)
            session.tell(runtime_pb2.ServerFrame(welcome=welcome))
            served.relay.returned(client)
            await stream.carry(session)
        finally:
            left = session.has_left
            session.close()
            served.detach(client, session, for_good=left)


class _Stream:
    """The two directions of one stream."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.filled = asyncio.Event()
        self.drained = asyncio.Event()

    async def carry(self, session: ClientSession) -> None:
        """Runs until the session is over. Raises the error that it ends with."""
        async with asyncio.TaskGroup() as group:
            hearing, telling = group.create_task(self._hear(session)), group.create_task(self._tell(session))
            error = await session.over
            hearing.cancel()
            self.filled.set()
            await asyncio.wait((telling,), timeout=LAST_WORDS)
            telling.cancel()
        if error is not None:
            raise error

    async def _hear(self, session: ClientSession) -> None:
        try:
            while (frame := await _read(self._context)) is not None:
                session.hear(frame)
                while session.outbox.full:
                    self.drained.clear()
                    await self.drained.wait()
            session.finish()
        except CenoteError as error:
            session.end(error)

    async def _tell(self, session: ClientSession) -> None:
        try:
            await self._write(session)
        except grpc.aio.InternalError:  # a write to a peer that has hung up
            session.end(UnavailableError("the client has hung up"))

    async def _write(self, session: ClientSession) -> None:
        while not session.over.done():
            if (frame := session.outbox.next()) is not None:
                await self._context.write(frame)
            elif session.finished:
                session.end(None)
            else:
                self.filled.clear()
                await self.filled.wait()
        if (error := session.over.result()) is not None:
            await self._context.write(runtime_pb2.ServerFrame(failure=to_failure(error), begun=session.begun))


async def _read(context: Context) -> runtime_pb2.ClientFrame | None:
    """The next frame, None at the end. Raises ProtocolViolation for a malformed one."""
    try:
        frame = await context.read()
    except DecodeError:
        raise ProtocolViolation("a message that is no frame") from None
    return frame if isinstance(frame, runtime_pb2.ClientFrame) else None
