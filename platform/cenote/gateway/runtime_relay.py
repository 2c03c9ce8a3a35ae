"""RuntimeService at the gateway: a client's stream, carried to the runtime and back. Only the first frame is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from cenote.gateway.audit.events import access_decided
from cenote.gateway.callers import Callers, Context
from cenote.gateway.nodes import Place
from cenote.gateway.principal import Principal
from cenote.gateway.registry import Registry, subject_of
from cenote.gateway.stores import Stores
from cenote.gateway.upstream import Upstream
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import ProtocolViolation
from cenote_security.ids import RuntimeId
from cenote_worker.serving.edge import check_hello
from cenote_worker.serving.limits import PATIENCE
from cenote_worker.wire.programs import check_start

SERVICE: Final = runtime_pb2.DESCRIPTOR.services_by_name["RuntimeService"].full_name
_ATTACH: Final = f"/{SERVICE}/Attach"
_RUN_PROCESS: Final = f"/{SERVICE}/RunProcess"

_Call = grpc.aio.StreamStreamCall[bytes, bytes]


class RuntimeRelay:
    """What a stream says is between its two ends; whose it is and where it goes is decided here, once."""

    def __init__(self, stores: Stores, registry: Registry, callers: Callers, upstream: Upstream) -> None:
        self._stores = stores
        self._registry = registry
        self._callers = callers
        self._upstream = upstream

    def handler(self) -> grpc.GenericRpcHandler:
        attach: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._attach)
        run: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._run_process)
        return grpc.method_handlers_generic_handler(SERVICE, {"Attach": attach, "RunProcess": run})

    async def _attach(self, _frames: object, context: Context) -> None:
        await self._relay(context, "attach", _ATTACH, _wanted)

    async def _run_process(self, _frames: object, context: Context) -> None:
        await self._relay(context, "run_process", _RUN_PROCESS, _beside)

    async def _relay(
        self, context: Context, action: str, method: str, wanted: Callable[[bytes], RuntimeId]
    ) -> None:
        """action: see Callers.served. wanted: which runtime the first frame is for."""
        async with self._callers.served(context, action) as principal:
            first = await _first(context)
            runtime = wanted(first)
            place, capability = await self._callers.on_thread(
                lambda: self._admitted(principal, runtime, action)
            )
            with self._upstream.to(place.doors.components) as channel:
                call: _Call = channel.stream_stream(method)(
                    metadata=(("authorization", f"Bearer {capability}"),)
                )
                try:
                    await call.write(first)
                    await self._carry(context, call)
                finally:
                    call.cancel()

    async def _carry(self, context: Context, call: _Call) -> None:
        """Both ways, each as fast as its reader, until the runtime's side ends or the token is not good any more.

        Raises the error that it ends with.
        """
        up, down = asyncio.create_task(_up(context, call)), asyncio.create_task(_down(context, call))
        barred = asyncio.create_task(self._callers.barred(context))
        try:
            await asyncio.wait((down, barred), return_when=asyncio.FIRST_COMPLETED)
            await (barred if barred.done() else down)
        finally:
            for task in (up, down, barred):
                task.cancel()
            await asyncio.gather(up, down, barred, return_exceptions=True)

    def _admitted(self, principal: Principal, runtime: RuntimeId, action: str) -> tuple[Place, str]:
        record = self._stores.runtimes.by_id(principal.tenant, runtime)
        capability, _ = self._stores.access.capability(principal, record)
        place = self._registry.locate(record)
        assert place is not None, "it is served by now"
        self._stores.recorder.record(access_decided(subject_of(principal, runtime), action))
        return place, capability


async def _first(context: Context) -> bytes:
    try:
        async with asyncio.timeout(PATIENCE.handshake):
            frame = await context.read()
    except TimeoutError:
        raise ProtocolViolation(f"no Hello within {PATIENCE.handshake:g} s") from None
    if not isinstance(frame, bytes):
        raise ProtocolViolation("a stream without Hello")
    return frame


def _wanted(first: bytes) -> RuntimeId:
    try:
        return RuntimeId(check_hello(runtime_pb2.ClientFrame.FromString(first)).runtime)
    except DecodeError:
        raise ProtocolViolation("a message that is no frame") from None


def _beside(first: bytes) -> RuntimeId:
    try:
        return RuntimeId(check_start(runtime_pb2.ProcessInput.FromString(first)).runtime)
    except DecodeError:
        raise ProtocolViolation("a message that is no frame") from None


async def _down(context: Context, call: _Call) -> None:
    while isinstance(frame := await call.read(), bytes):
        await context.write(frame)


async def _up(context: Context, call: _Call) -> None:
    try:
        while isinstance(frame := await context.read(), bytes):
            await call.write(frame)
        await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return  # the other direction says why
