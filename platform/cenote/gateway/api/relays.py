"""RuntimeService and ReferenceService at the gateway, relayed to the nodes.

A runtime's stream is carried to it and back; only the first frame is read. A call about a value goes to a node that
has it; a list is merged from all nodes. Connections to nodes are shared. Runs on one event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from cenote.gateway.api.calls import Context, GatewayCalls
from cenote.gateway.api.runtime_registry import RuntimeRegistry, subject_of
from cenote.gateway.audit.events import access_decided
from cenote.gateway.machines.nodes import Nodes, RuntimeLocation
from cenote.gateway.store.stores import Stores
from cenote.gateway.tls.certificates import InternalTls
from cenote.gateway.values.principal import Principal
from cenote_proto.scalars import make
from cenote_proto.v1 import reference_pb2, runtime_pb2
from cenote_security.auth.certificates import TlsMaterial
from cenote_security.errors import ProtocolViolation, UnavailableError, UsageError
from cenote_security.ids import RuntimeId
from cenote_worker.serving.calls.call_parser import check_hello
from cenote_worker.serving.limits import MAX_NAME, SERVER_TIMEOUTS
from cenote_worker.wire.channels import CLIENT
from cenote_worker.wire.programs import check_start

_IDLE: Final = 64
"""Idle connections that stay open for the next call."""


_Line = tuple[str, TlsMaterial | None]
"""An address, and the certificate that the gateway shows there; a renewed certificate makes another connection."""


class NodeConnections:
    """One connection per address, open while in use and for a while after. lines: see InternalTls."""

    def __init__(self, lines: InternalTls) -> None:
        self._lines = lines
        self._channels: dict[_Line, grpc.aio.Channel] = {}
        self._users: Counter[_Line] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def to(self, address: str) -> Iterator[grpc.aio.Channel]:
        """The connection, for use inside the context."""
        line = (address, self._lines.material() if self._lines.secures(address) else None)
        channel = self._channels.pop(line, None) or _open(line)
        self._channels[line] = channel  # at the end: the first ones are the longest unused
        self._users[line] += 1
        try:
            yield channel
        finally:
            self._users[line] -= 1
            self._let_go()

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing)

    def _let_go(self) -> None:
        idle = [line for line in self._channels if not self._users[line]]
        for line in idle[: max(len(idle) - _IDLE, 0)]:
            del self._users[line]
            task = asyncio.create_task(self._channels.pop(line).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _open(line: _Line) -> grpc.aio.Channel:
    address, shown = line
    if shown is None:
        return grpc.aio.insecure_channel(address, options=CLIENT)
    credentials = grpc.ssl_channel_credentials(shown.authority, shown.own.key, shown.own.certificate)
    return grpc.aio.secure_channel(address, credentials, options=CLIENT)


RUNTIME_SERVICE: Final = runtime_pb2.DESCRIPTOR.services_by_name["RuntimeService"].full_name
_ATTACH: Final = f"/{RUNTIME_SERVICE}/Attach"
_RUN_PROCESS: Final = f"/{RUNTIME_SERVICE}/RunProcess"

_Call = grpc.aio.StreamStreamCall[bytes, bytes]


class RuntimeRelay:
    """Relays streams without reading them; decides once per stream who owns it and where it goes."""

    def __init__(
        self, stores: Stores, registry: RuntimeRegistry, callers: GatewayCalls, upstream: NodeConnections
    ) -> None:
        self._stores = stores
        self._registry = registry
        self._callers = callers
        self._upstream = upstream

    def handler(self) -> grpc.GenericRpcHandler:
        attach: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._attach)
        run: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._run_process)
        return grpc.method_handlers_generic_handler(RUNTIME_SERVICE, {"Attach": attach, "RunProcess": run})

    async def _attach(self, _frames: object, context: Context) -> None:
        await self._relay(context, "attach", _ATTACH, _wanted)

    async def _run_process(self, _frames: object, context: Context) -> None:
        await self._relay(context, "run_process", _RUN_PROCESS, _beside)

    async def _relay(
        self, context: Context, action: str, method: str, wanted: Callable[[bytes], RuntimeId]
    ) -> None:
        """action: see GatewayCalls.served. wanted: reads the runtime from the first frame."""
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
        """Carries both directions, each as fast as its reader, until the runtime's side ends or the token is no
        longer good.

        Raises the error that the stream ends with.
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

    def _admitted(self, principal: Principal, runtime: RuntimeId, action: str) -> tuple[RuntimeLocation, str]:
        record = self._stores.runtimes.by_id(principal.tenant, runtime)
        capability, _ = self._stores.access.capability(principal, record)
        place = self._registry.locate(record)
        assert place is not None, "it is served by now"
        self._stores.recorder.record(access_decided(subject_of(principal, runtime), action))
        return place, capability


async def _first(context: Context) -> bytes:
    try:
        async with asyncio.timeout(SERVER_TIMEOUTS.handshake):
            frame = await context.read()
    except TimeoutError:
        raise ProtocolViolation(f"no Hello within {SERVER_TIMEOUTS.handshake:g} s") from None
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
        return  # the other direction raises the reason


REFERENCE_SERVICE: Final = reference_pb2.DESCRIPTOR.services_by_name["ReferenceService"].full_name

DEADLINE: Final = 30.0
"""Seconds for a node to answer."""

READING: Final = 3600.0
"""Seconds for reading the bytes of one value."""

MAX_LISTED: Final = 1_000

Metadata = tuple[tuple[str, str], ...]
_Named = (
    type[reference_pb2.ReferenceId] | type[reference_pb2.HoldRequest] | type[reference_pb2.ReleaseRequest]
)
_UNARY: Final[dict[str, _Named]] = {
    "GetReference": reference_pb2.ReferenceId,
    "HoldReference": reference_pb2.HoldRequest,
    "ReleaseReference": reference_pb2.ReleaseRequest,
}
"""Calls about one reference, and their request types."""


class ReferenceRelay:
    """Calls nodes in the tenant's name, with a capability for references only."""

    def __init__(
        self, stores: Stores, nodes: Nodes, callers: GatewayCalls, upstream: NodeConnections
    ) -> None:
        self._stores = stores
        self._nodes = nodes
        self._callers = callers
        self._upstream = upstream

    def handler(self) -> grpc.GenericRpcHandler:
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(self._passing(name, request))
            for name, request in _UNARY.items()
        }
        methods["ReadReference"] = grpc.unary_stream_rpc_method_handler(self._read)
        methods["ListReferences"] = grpc.unary_unary_rpc_method_handler(self._list)
        return grpc.method_handlers_generic_handler(REFERENCE_SERVICE, methods)

    async def hold(self, principal: Principal, request: reference_pb2.HoldRequest) -> None:
        """Holds a value for the platform itself, in a tenant's name. Raises CenoteError and grpc.aio.AioRpcError."""
        address, metadata = await self._way(principal, request.id)
        await self._asked(address, "HoldReference", request.SerializeToString(), metadata)

    def _passing(self, name: str, kind: _Named) -> Callable[[bytes, Context], object]:
        async def passed(request: bytes, context: Context) -> bytes:
            async with self._callers.served(context, name) as principal:
                address, metadata = await self._way(principal, _reference(kind, request))
                return await self._asked(address, name, request, metadata)
            raise AssertionError("a call that failed was ended")

        return passed

    async def _read(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        async with self._callers.served(context, "ReadReference") as principal:
            address, metadata = await self._way(principal, _reference(reference_pb2.ReferenceId, request))
            with self._upstream.to(address) as channel:
                read: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
                    f"/{REFERENCE_SERVICE}/ReadReference"
                )
                call = read(request, metadata=metadata, timeout=READING)
                try:
                    async for chunk in call:
                        yield chunk
                finally:
                    call.cancel()

    async def _list(self, request: bytes, context: Context) -> bytes:
        async with self._callers.served(context, "ListReferences") as principal:
            wanted = _parsed_list(request)
            limit = min(wanted.limit or MAX_LISTED, MAX_LISTED)
            metadata = self._metadata(principal)
            nodes = await self._callers.on_thread(self._nodes.describe)
            if silent := [node.id for node in nodes if node.silent]:
                raise UnavailableError(
                    f"{', '.join(silent)} does not answer, so this list would lack its values"
                )
            asked = make(
                reference_pb2.ListReferencesRequest, limit=limit, page=wanted.page
            ).SerializeToString()
            replies = await asyncio.gather(
                *(self._asked(node.address, "ListReferences", asked, metadata) for node in nodes)
            )
            return _merged(map(reference_pb2.ListReferencesReply.FromString, replies), limit)
        raise AssertionError("a call that failed was ended")

    async def _way(self, principal: Principal, reference: str) -> tuple[str, Metadata]:
        metadata = self._metadata(principal)
        address = await self._callers.on_thread(lambda: self._nodes.reference_address(reference))
        return address, metadata

    def _metadata(self, principal: Principal) -> Metadata:
        return (("authorization", f"Bearer {self._stores.access.reference_capability(principal)}"),)

    async def _asked(self, address: str, name: str, request: bytes, metadata: Metadata) -> bytes:
        with self._upstream.to(address) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/{REFERENCE_SERVICE}/{name}"
            )
            return await call(request, metadata=metadata, timeout=DEADLINE)


def _reference(kind: _Named, request: bytes) -> str:
    """The reference that a call is about. Raises UsageError."""
    try:
        name = kind.FromString(request).id
    except DecodeError:
        raise UsageError(f"a message that is no {kind.DESCRIPTOR.name}") from None
    if not 0 < len(name) <= MAX_NAME:
        raise UsageError(f"a reference has an id of 1 to {MAX_NAME} characters")
    return name


def _parsed_list(request: bytes) -> reference_pb2.ListReferencesRequest:
    try:
        return reference_pb2.ListReferencesRequest.FromString(request)
    except DecodeError:
        raise UsageError("a message that is no ListReferencesRequest") from None


def _merged(replies: Iterable[reference_pb2.ListReferencesReply], limit: int) -> bytes:
    """One page by id; a value that several nodes have is listed once."""
    found = {reference.id: reference for reply in replies for reference in reply.references}
    ids = sorted(found)[:limit]
    page = ids[-1] if len(ids) == limit else ""
    merged = make(reference_pb2.ListReferencesReply, references=[found[name] for name in ids], next_page=page)
    return merged.SerializeToString()
