"""Values that a platform keeps for this client: held for as long as code here refers to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict, TypeVar

import grpc

from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.background import background
from cenote.runtime.remote.channels import DEADLINE, Channels, asked, authorization, meaning
from cenote_proto.scalars import make
from cenote_proto.v1 import reference_pb2
from cenote_proto.v1.reference_pb2_grpc import ReferenceServiceStub
from cenote_security.errors import (
    CenoteError,
    ProtocolViolation,
    RuntimeClosedError,
    UnknownReferenceError,
)
from cenote_security.sealed_memory import SealedDraft
from cenote_worker.execution.results import VariableInfo
from cenote_worker.supervisor.frame_parser import read_info
from cenote_worker.transport.content import Content

LEASE: Final = 120.0
"""Seconds that the platform keeps a value after its holder was last heard of."""

RENEW_EVERY: Final = 25.0
"""Seconds; twice within the minute that a platform gives at first."""

DOWNLOAD: Final = 3600.0
"""Seconds for the bytes of one value to arrive."""


if TYPE_CHECKING:
    from cenote_proto.v1.reference_pb2_grpc import ReferenceServiceAsyncStub

Answer = TypeVar("Answer")


class ReferenceRight(NamedTuple):
    """To a value, as the platform knows it: who holds what."""

    reference: str
    holder: str


class Terms(TypedDict):
    """What every call goes with."""

    metadata: tuple[tuple[str, str], ...]
    timeout: float


class References:
    """What this process holds at one platform. On the background loop but for what is said otherwise."""

    def __init__(self, destination: Destination, channels: Channels) -> None:
        self._destination = destination
        self._channels = channels
        self._pid = os.getpid()
        self._held: dict[ReferenceRight, int] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def place(self) -> str:
        return self._destination.address

    def keep(self, reference: str, holder: str) -> RemoteHolding:
        """A right to what waits for its first holder; it lasts until it is released."""
        right = ReferenceRight(reference, holder)
        held = self._keep(right)
        self._begin(self._renew_one(right))
        return held

    def _keep(self, right: ReferenceRight) -> RemoteHolding:
        self._held[right] = self._held.get(right, 0) + 1
        if self._renewing is None or self._renewing.done():
            self._renewing = background().spawn(self._renew())
        return RemoteHolding(self, right)

    async def hold(self, reference: str, holder: str) -> RemoteHolding:
        """A right to a value that another client holds so far. Raises UnknownReferenceError or a subclass."""
        right = ReferenceRight(reference, holder)
        await self._ask_for(right)
        return self._keep(right)

    async def find(self, reference: str, holder: str) -> tuple[RemoteHolding, VariableInfo]:
        """The same, of which nothing is known but its id; and what may be said of it."""
        held = await self.hold(reference, holder)
        question = make(reference_pb2.ReferenceId, id=reference)
        described = await self._ask(self._stub().GetReference(question, **self._terms()))
        return held, read_info(described.info)

    async def leave(self, reference: str, holder: str, seconds: float) -> None:
        """Has the platform keep a value for so long, whatever becomes of this process."""
        request = make(reference_pb2.HoldRequest, id=reference, holder=holder, lease=seconds)
        await self._ask(self._stub().HoldReference(request, **self._terms()))

    def release(self, right: ReferenceRight) -> None:
        """One right less. From any thread, at any time: garbage collectors call it too, and forked children."""
        if os.getpid() == self._pid:
            with contextlib.suppress(RuntimeClosedError):  # the process ends: its leases end the right
                background().post(self._released, right)

    def bring(self, reference: str) -> Content:
        """The sealed bytes, here. Blocks; not on the background loop."""
        return background().wait(self._download(reference), DOWNLOAD, "send the value")

    async def close(self) -> None:
        """Gives everything back."""
        if self._renewing is not None:
            self._renewing.cancel()
        held, self._held = list(self._held), {}
        await asyncio.gather(*self._under_way, *map(self._give_back, held))

    def _released(self, right: ReferenceRight) -> None:
        left = self._held.get(right, 0) - 1
        if left > 0:
            self._held[right] = left
        elif left == 0:
            del self._held[right]
            self._begin(self._give_back(right))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """Something that is finished before the process ends."""
        task = background().spawn(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _renew(self) -> None:
        while self._held:
            await asyncio.sleep(RENEW_EVERY)
            await asyncio.gather(*map(self._renew_one, list(self._held)))

    async def _renew_one(self, right: ReferenceRight) -> None:
        try:
            await self._ask_for(right)
        except UnknownReferenceError:  # it is gone; using the value raises this
            self._held.pop(right, None)
        except CenoteError:  # another try comes before its end
            return
        if right not in self._held:  # released meanwhile, and perhaps before this arrived
            await self._give_back(right)

    async def _ask_for(self, right: ReferenceRight) -> None:
        request = make(reference_pb2.HoldRequest, id=right.reference, holder=right.holder, lease=LEASE)
        await self._ask(self._stub().HoldReference(request, **self._terms()))

    async def _give_back(self, right: ReferenceRight) -> None:
        request = make(reference_pb2.ReleaseRequest, id=right.reference, holder=right.holder)
        with contextlib.suppress(CenoteError):  # then its lease ends it
            await self._ask(self._stub().ReleaseReference(request, **self._terms()))

    async def _download(self, reference: str) -> Content:
        described = await self._ask(
            self._stub().GetReference(make(reference_pb2.ReferenceId, id=reference), **self._terms())
        )
        draft = SealedDraft()
        try:
            await self._fill(draft, reference, described.size)
            return Content(size=described.size, count=described.parts, memory=draft.seal())
        finally:
            draft.close()

    async def _fill(self, draft: SealedDraft, reference: str, size: int) -> None:
        stream = self._stub().ReadReference(
            make(reference_pb2.ReferenceId, id=reference), metadata=authorization(self._destination.token)
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


class RemoteHolding:
    """See Holding: a right to a value of a platform."""

    def __init__(self, references: References, right: ReferenceRight) -> None:
        self._references = references
        self._right = right

    @property
    def place(self) -> str:
        return self._references.place

    @property
    def id(self) -> str:
        return self._right.reference

    def content(self) -> Content:
        return self._references.bring(self.id)

    def release(self) -> None:
        self._references.release(self._right)
