"""A platform's gateway, as this process uses it: which runtimes there are, where they are, who may have them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.channels import DEADLINE, Channels, asked, authorization
from cenote.runtime.remote.references import References, Terms
from cenote.runtime.remote.session import Place
from cenote_proto.v1 import platform_pb2
from cenote_proto.v1.platform_pb2_grpc import PlatformServiceStub
from cenote_security.errors import UnknownRuntimeError
from cenote_security.policy import SandboxPolicy
from cenote_worker.wire import policies

if TYPE_CHECKING:
    from cenote_proto.v1.platform_pb2_grpc import PlatformServiceAsyncStub

LEASE: Final = 60.0
"""Seconds that a runtime without a name outlives its client."""


@lru_cache(maxsize=64)
def client_of(destination: Destination) -> PlatformClient:
    """The process's client of a platform: all its runtimes there share connections and leases."""
    return PlatformClient(destination)


class PlatformClient:
    """One per process and destination. On the background loop."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self.channels = Channels(destination.authority)
        self.references = References(destination, self.channels)
        self._ours: set[str] = set()

    @property
    def address(self) -> str:
        return self._destination.address

    async def runtime(
        self, name: str, policy: SandboxPolicy, *, attach: bool
    ) -> platform_pb2.RuntimeDescription:
        """A runtime of that name, made if need be; a fresh one, which ends with this client, for an empty name."""
        request = platform_pb2.CreateRuntimeRequest(
            name=name,
            policy=policies.to_message(policy),
            attach=attach,
            key=secrets.token_hex(16),
            lease=0 if name else LEASE,
        )
        made = await asked(self._stub().CreateRuntime(request, **self._terms()), self._destination)
        if not name:
            self._ours.add(made.id)
        return made

    def locating(self, first: platform_pb2.RuntimeDescription) -> Callable[[], Awaitable[Place]]:
        """Says where the runtime is: as described at first, then as the gateway knows it."""
        known: list[platform_pb2.RuntimeDescription] = [first]

        async def locate() -> Place:
            description = known.pop() if known else await self.describe(first.id)
            if description.state == platform_pb2.RuntimeDescription.LOST:
                raise UnknownRuntimeError(description.name)
            return Place(
                runtime=description.id,
                address=description.address or self._destination.address,
                credential=description.capability or self._destination.token,
            )

        return locate

    async def describe(self, name: str) -> platform_pb2.RuntimeDescription:
        return await asked(
            self._stub().GetRuntime(platform_pb2.RuntimeName(name=name), **self._terms()), self._destination
        )

    async def left(self, name: str) -> None:
        """This client has left a runtime; one that was its own is deleted."""
        if name in self._ours:
            self._ours.discard(name)
            await self.delete(name)

    async def delete(self, name: str) -> None:
        await asked(
            self._stub().DeleteRuntime(platform_pb2.RuntimeName(name=name), **self._terms()),
            self._destination,
        )

    def _stub(self) -> PlatformServiceAsyncStub:
        return PlatformServiceStub(self.channels.to(self._destination.address))

    def _terms(self) -> Terms:
        return Terms(metadata=authorization(self._destination.token), timeout=DEADLINE)
