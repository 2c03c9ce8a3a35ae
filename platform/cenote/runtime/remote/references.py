"""Values that a platform keeps for this client: held for as long as somebody here refers to them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

import grpc

from cenote.runtime.references import ObjectReference
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.background import loop, wait_for
from cenote.runtime.remote.channels import DEADLINE, Channels, asked, authorization, meaning
from cenote_proto.v1 import reference_pb2, runtime_pb2
from cenote_proto.v1.reference_pb2_grpc import ReferenceServiceStub
from cenote_security.errors import CenoteError, ProtocolViolation
from cenote_security.sealed import Draft
from cenote_worker.content import Content
from cenote_worker.supervisor.edge import read_info

LEASE: Final = 120.0
"""Seconds that the platform keeps a value after its holder was last heard of."""

DOWNLOAD: Final = 3600.0
"""Seconds for the bytes of one value to arrive."""


if TYPE_CHECKING:
    from cenote_proto.v1.reference_pb2_grpc import ReferenceServiceAsyncStub

Answer = TypeVar("Answer")


class Terms(TypedDict):
    """What every call goes with."""

    metadata: tuple[tuple[str, str], ...]
    timeout: float


class References:
    """What this process holds at one platform. On the background loop but for what is said otherwise."""

    def __init__(self, destination: Destination, channels: Channels) -> None:
        self._destination = destination
        self._channels = channels
        self._holder = secrets.token_hex(16)
        self._held: dict[str, int] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._working: set[asyncio.Task[None]] = set()

    @property
    def place(self) -> str:
        return self._destination.address

    def hold(self, shared: runtime_pb2.Shared) -> HeldThere:
        """The right to what a server tells of; it lasts until it is released."""
        self._held[shared.reference] = self._held.get(shared.reference, 0) + 1
        self._soon(self._renew_one(shared.reference))
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(), name="cenote-leases")
        return HeldThere(self, shared.reference)

    def known(self, shared: runtime_pb2.Shared) -> ObjectReference:
        """As `hold`, for code that takes references."""
        return ObjectReference(self.hold(shared), read_info(shared.info))

    def release(self, reference: str) -> None:
        """One right less. From any thread, at any time: garbage collectors call it too."""
        with contextlib.suppress(
            RuntimeError
        ):  # the loop is closed: the process ends, and its leases with it
            loop().call_soon_threadsafe(self._released, reference)

    def bring(self, reference: str) -> Content:
        """The sealed bytes, here. Blocks; not on the background loop."""
        return wait_for(self._download(reference), DOWNLOAD, "send the value")

    async def close(self) -> None:
        """Gives everything back."""
        if self._renewing is not None:
            self._renewing.cancel()
        held, self._held = list(self._held), {}
        await asyncio.gather(*map(self._give_back, held))

    def _released(self, reference: str) -> None:
        left = self._held.get(reference, 0) - 1
        if left > 0:
            self._held[reference] = left
        elif left == 0:
            del self._held[reference]
            self._soon(self._give_back(reference))

    def _soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _renew(self) -> None:
        while self._held:
            await asyncio.sleep(LEASE / 3)
            await asyncio.gather(*map(self._renew_one, list(self._held)))

    async def _renew_one(self, reference: str) -> None:
        request = reference_pb2.HoldRequest(id=reference, holder=self._holder, lease=LEASE)
        with contextlib.suppress(
            CenoteError
        ):  # whoever uses the value is told; two more tries come before its end
            await self._ask(self._stub().HoldReference(request, **self._terms()))

    async def _give_back(self, reference: str) -> None:
        request = reference_pb2.ReleaseRequest(id=reference, holder=self._holder)
        with contextlib.suppress(CenoteError):  # then its lease ends it
            await self._ask(self._stub().ReleaseReference(request, **self._terms()))

    async def _download(self, reference: str) -> Content:
        described = await self._ask(
            self._stub().GetReference(reference_pb2.ReferenceId(id=reference), **self._terms())
        )
        draft = Draft()
        try:
            await self._fill(draft, reference, described.size)
            return Content(size=described.size, count=described.parts, memory=draft.seal())
        finally:
            draft.close()

    async def _fill(self, draft: Draft, reference: str, size: int) -> None:
        stream = self._stub().ReadReference(
            reference_pb2.ReferenceId(id=reference), metadata=authorization(self._destination.token)
        )
        try:
            async for chunk in stream:
                if draft.filled + len(chunk.data) > size:
                    raise ProtocolViolation("a value with more bytes than were announced")
                draft.write(chunk.data)
        except grpc.aio.AioRpcError as error:
            raise meaning(error, self._destination.address) from None
        if draft.filled != size:
            raise ProtocolViolation("a value with fewer bytes than were announced")

    def _stub(self) -> ReferenceServiceAsyncStub:
        return ReferenceServiceStub(self._channels.to(self._destination.address))

    def _terms(self) -> Terms:
        return Terms(metadata=authorization(self._destination.token), timeout=DEADLINE)

    async def _ask(self, call: Awaitable[Answer]) -> Answer:
        return await asked(call, self._destination)


class HeldThere:
    """See Holding: a right to a value of a platform."""

    def __init__(self, references: References, reference: str) -> None:
        self._references = references
        self.id = reference

    @property
    def place(self) -> str:
        return self._references.place

    def content(self) -> Content:
        return self._references.bring(self.id)

    def release(self) -> None:
        self._references.release(self.id)
