"""ReferenceService at the gateway: each call goes to a node that has the value; a list is put together of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from cenote.gateway.callers import Callers, Context
from cenote.gateway.nodes import Nodes
from cenote.gateway.principal import Principal
from cenote.gateway.stores import Stores
from cenote.gateway.upstream import Upstream
from cenote_proto.scalars import make
from cenote_proto.v1 import reference_pb2
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.serving.limits import MAX_NAME

SERVICE: Final = reference_pb2.DESCRIPTOR.services_by_name["ReferenceService"].full_name

DEADLINE: Final = 30.0
"""Seconds for a node to answer."""

READING: Final = 3600.0
"""Seconds for the bytes of one value."""

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
"""Calls about one reference, and what their requests are."""


class ReferenceRelay:
    """Nodes are asked in the tenant's name, by a capability for references alone."""

    def __init__(self, stores: Stores, nodes: Nodes, callers: Callers, upstream: Upstream) -> None:
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
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def hold(self, principal: Principal, request: reference_pb2.HoldRequest) -> None:
        """For the platform itself, in a tenant's name. Raises CenoteError and grpc.aio.AioRpcError."""
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
                    f"/{SERVICE}/ReadReference"
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
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{name}")
            return await call(request, metadata=metadata, timeout=DEADLINE)


def _reference(kind: _Named, request: bytes) -> str:
    """Which one a call is about. Raises UsageError."""
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
