"""ReferenceService: the values of a tenant that live outside its runtimes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, TypeVar

import grpc.aio

from cenote_proto.scalars import make
from cenote_proto.v1 import reference_pb2
from cenote_proto.v1.reference_pb2_grpc import ReferenceServiceServicer
from cenote_security.errors import CenoteError, UnknownReferenceError, UsageError
from cenote_worker.serving.auth_interceptor import refuse
from cenote_worker.serving.limits import MAX_NAME
from cenote_worker.serving.references import LONGEST_LEASE, UNCLAIMED, ReferenceRecord, SharedValueStore
from cenote_worker.serving.rights import Authorise, bearer_token
from cenote_worker.transport.content import Content
from cenote_worker.wire.chunking import chunks
from cenote_worker.wire.results import from_info

MAX_LISTED = 1_000
"""References of one page: some hundred bytes each."""

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


class ReferenceService(ReferenceServiceServicer):
    """Serves a store whose calls may block, on threads of `pool`."""

    def __init__(self, authorise: Authorise, store: SharedValueStore, pool: Executor) -> None:
        self._authorise = authorise
        self._store = store
        self._pool = pool

    async def GetReference(
        self, request: reference_pb2.ReferenceId, context: Context
    ) -> reference_pb2.ReferenceDescription:
        record = await self._carry_out(context, lambda tenant: self._store.describe(request.id, tenant))
        return _described(record)

    async def ListReferences(
        self, request: reference_pb2.ListReferencesRequest, context: Context
    ) -> reference_pb2.ListReferencesReply:
        limit = min(request.limit or MAX_LISTED, MAX_LISTED)
        records = await self._carry_out(
            context, lambda tenant: self._store.list(tenant, after=request.page, limit=limit)
        )
        page = records[-1].id if len(records) == limit else ""
        return make(reference_pb2.ListReferencesReply, references=map(_described, records), next_page=page)

    async def HoldReference(
        self, request: reference_pb2.HoldRequest, context: Context
    ) -> reference_pb2.ReferenceDescription:
        def hold(tenant: str) -> ReferenceRecord:
            _check_hold(request)
            self._store.hold(request.id, tenant, holder=request.holder, lease=request.lease)
            self._store.release(request.id, tenant, holder=UNCLAIMED)
            return self._store.describe(request.id, tenant)

        return _described(await self._carry_out(context, hold))

    async def ReleaseReference(
        self, request: reference_pb2.ReleaseRequest, context: Context
    ) -> reference_pb2.ReleaseReply:
        def release(tenant: str) -> None:
            self._store.release(request.id, tenant, holder=request.holder)
            with suppress(UnknownReferenceError):  # it was removed with this holder
                # A client that releases it has received it. Its hold may still arrive, and then comes too late.
                self._store.release(request.id, tenant, holder=UNCLAIMED)

        await self._carry_out(context, release)
        return reference_pb2.ReleaseReply()

    async def ReadReference(
        self, request: reference_pb2.ReferenceId, context: Context
    ) -> AsyncIterator[reference_pb2.ReferenceChunk]:
        content = await self._carry_out(context, lambda tenant: self._store.content(request.id, tenant))
        try:
            for data in _pieces(content):
                yield reference_pb2.ReferenceChunk(data=data)
        finally:
            content.close()

    async def _carry_out(self, context: Context, work: Callable[[str], T]) -> T:
        """The store's result for the calling tenant; a failure ends the call."""
        token = bearer_token(context.invocation_metadata() or ())

        def authorised() -> T:
            rights = self._authorise(token, None)
            rights.require("share")
            return work(rights.tenant)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, authorised)
        except CenoteError as error:
            await refuse(context, error)


def _check_hold(request: reference_pb2.HoldRequest) -> None:
    if not 0 < len(request.holder) <= MAX_NAME or request.holder == UNCLAIMED:
        raise UsageError(f"a holder has a name of 1 to {MAX_NAME} characters")
    if not (math.isfinite(request.lease) and 0 < request.lease <= LONGEST_LEASE):
        raise UsageError(f"a lease is of more than 0 and at most {LONGEST_LEASE:g} s")


def _pieces(content: Content) -> Iterable[bytes]:
    return [content.inline or b""] if content.memory is None else chunks(content)


def _described(record: ReferenceRecord) -> reference_pb2.ReferenceDescription:
    return make(
        reference_pb2.ReferenceDescription,
        id=record.id,
        info=from_info(record.info),
        size=record.size,
        parts=record.parts,
        node=record.node,
        holders=record.holders,
        created=record.created,
        expires=record.expires if math.isfinite(record.expires) else 0.0,
        runtime=record.origin.runtime,
        step=record.origin.step,
        held_by=record.held_by,
    )
