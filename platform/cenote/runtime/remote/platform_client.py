"""A platform's gateway, as this process uses it: which runtimes there are, where they are, who may have them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

import grpc

from cenote.runtime.core.backend import NO_RETENTION, RetentionOptions
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.background import background
from cenote.runtime.remote.channels import DEADLINE, Channels, asked, authorization, meaning
from cenote.runtime.remote.environments import with_built_environment
from cenote.runtime.remote.reconnection import without_waiting
from cenote.runtime.remote.references import References, Terms
from cenote_proto.scalars import make
from cenote_proto.v1 import platform_pb2, reference_pb2
from cenote_proto.v1.platform_pb2_grpc import PlatformServiceStub
from cenote_proto.v1.reference_pb2_grpc import ReferenceServiceStub
from cenote_security.environment import Environment
from cenote_security.errors import RuntimeLostError
from cenote_security.policy import SandboxPolicy
from cenote_worker.wire import option_messages, policies

if TYPE_CHECKING:
    from cenote.runtime.remote.session import ServedAt
    from cenote_proto.v1.platform_pb2_grpc import PlatformServiceAsyncStub

Answer = TypeVar("Answer")

LEASE: Final = 60.0
"""Seconds that a runtime without a name outlives its client."""

ALIVE: Final = 10.0
"""Seconds for a gateway to say that it is there: it waits for eight at most for machines that hang."""

FORK_DEADLINE: Final = 115.0
"""Seconds for a fork: somewhat more than the platform gives it."""

_making = threading.Lock()


def client_of(destination: Destination) -> PlatformClient:
    """The process's client of a platform: all its runtimes there share connections and leases.

    Raises RuntimeClosedError in a forked child, see `background`.
    """
    background()
    with _making:
        return _client_of(destination)


@cache  # one that was dropped would leave its connections and leases behind
def _client_of(destination: Destination) -> PlatformClient:
    return PlatformClient(destination)


class PlatformClient:
    """One per process and destination. On the background loop."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self.channels = Channels(destination.authority, destination.wait, insists=destination.insists)
        self.references = References(destination, self.channels)
        background().at_end(self._end)

    @property
    def address(self) -> str:
        return self._destination.address

    @property
    def destination(self) -> Destination:
        return self._destination

    @property
    def wait(self) -> float:
        """Seconds, see Destination."""
        return self._destination.wait

    async def runtime(
        self,
        name: str,
        policy: SandboxPolicy,
        *,
        attach: bool,
        key: str,
        lease: float = 0.0,
        kept: RetentionOptions = NO_RETENTION,
    ) -> platform_pb2.RuntimeDescription:
        """A runtime of that name, made if need be; a fresh one, which ends with this client, for an empty name. Its
        environment is built first, and waited for.

        Raises NameExistsError for a name that is taken, unless `attach`.
        """
        if isinstance(policy.environment, Environment):
            policy = await asyncio.to_thread(with_built_environment, self._destination, policy)
        request = make(
            platform_pb2.CreateRuntimeRequest,
            name=name,
            policy=policies.from_policy(policy),
            attach=attach,
            key=key,
            lease=lease if name else LEASE,
        )
        option_messages.fill_options(request, kept)
        return await self._made(request)

    async def _made(self, request: platform_pb2.CreateRuntimeRequest) -> platform_pb2.RuntimeDescription:
        """The requested runtime. A platform may have it wait for room, for longer than other answers take."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            try:
                return await self._stub().CreateRuntime(request, **self._terms())
            except grpc.aio.AioRpcError as error:
                is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not error.trailing_metadata()
                if not is_late or clock() - began > await self._wait_for_room():
                    raise meaning(error, self._destination.address, token=self._destination.token) from None

    async def _wait_for_room(self) -> float:
        """Seconds; 0 where the platform does not answer."""
        terms = Terms(metadata=authorization(self._destination.token), timeout=ALIVE)
        try:
            return (await self._stub().Describe(platform_pb2.DescribePlatform(), **terms)).wait_for_room
        except grpc.aio.AioRpcError:
            return 0.0

    def locating(self, first: platform_pb2.RuntimeDescription) -> Callable[[], Awaitable[ServedAt]]:
        """Says where the runtime is: as described at first, then as the gateway knows it."""
        known: list[platform_pb2.RuntimeDescription] = [first]

        from cenote.runtime.remote.session import ServedAt  # who has no runtime does without it

        async def locate() -> ServedAt:
            with without_waiting():  # a session has a patience of its own
                description = known.pop() if known else await self.describe(first.id)
            if description.state == platform_pb2.RuntimeDescription.LOST:
                raise RuntimeLostError(description.reason or "its machine is gone")
            return ServedAt(
                runtime=description.id,
                address=description.address or self._destination.address,
                credential=description.capability or self._destination.token,
                authority=description.authority,
            )

        return locate

    async def describe(self, name: str, *, look: bool = False) -> platform_pb2.RuntimeDescription:
        """name: or id. look: one that is in the store alone is not to be served again. Raises UnknownRuntimeError."""
        question = make(platform_pb2.RuntimeName, name=name, look=look)
        return await self._ask(self._stub().GetRuntime(question, **self._terms()))

    async def fork(self, request: platform_pb2.ForkRuntimeRequest) -> list[platform_pb2.RuntimeDescription]:
        """Branches of a runtime, all of them or none."""
        terms = Terms(metadata=authorization(self._destination.token), timeout=FORK_DEADLINE)
        reply = await self._ask(self._stub().ForkRuntime(request, **terms))
        return list(reply.runtimes)

    async def list(self) -> list[platform_pb2.RuntimeDescription]:
        """All runtimes of this client's tenant."""
        found: list[platform_pb2.RuntimeDescription] = []
        page = ""
        while True:
            request = make(platform_pb2.ListRuntimesRequest, page=page)
            reply = await self._ask(self._stub().ListRuntimes(request, **self._terms()))
            found.extend(reply.runtimes)
            if not reply.next_page or reply.next_page == page:
                return found
            page = reply.next_page

    async def delete(self, name: str) -> None:
        """name: or id. Raises UnknownRuntimeError."""
        await self._ask(
            self._stub().DeleteRuntime(make(platform_pb2.RuntimeName, name=name), **self._terms())
        )

    async def list_references(self, after: str, limit: int) -> reference_pb2.ListReferencesReply:
        request = make(reference_pb2.ListReferencesRequest, page=after, limit=limit)
        stub = ReferenceServiceStub(self.channels.to(self._destination.address))
        return await self._ask(stub.ListReferences(request, **self._terms()))

    async def build_environment(
        self, request: platform_pb2.BuildEnvironmentRequest
    ) -> platform_pb2.EnvironmentDescription:
        return await self._ask(self._stub().BuildEnvironment(request, **self._terms()))

    async def environment(self, name: str) -> platform_pb2.EnvironmentDescription:
        """Raises UnknownEntryError."""
        question = make(platform_pb2.EnvironmentName, name=name)
        return await self._ask(self._stub().GetEnvironment(question, **self._terms()))

    async def environments(self) -> Sequence[platform_pb2.EnvironmentDescription]:
        """All of this client's tenant, after those of the operator."""
        found: list[platform_pb2.EnvironmentDescription] = []
        page = ""
        while True:
            request = make(platform_pb2.ListEnvironmentsRequest, page=page)
            reply = await self._ask(self._stub().ListEnvironments(request, **self._terms()))
            found.extend(reply.environments)
            if not reply.next_page or reply.next_page == page:
                return found
            page = reply.next_page

    async def remove_environment(self, name: str) -> None:
        """Raises UnknownEntryError."""
        question = make(platform_pb2.EnvironmentName, name=name)
        await self._ask(self._stub().RemoveEnvironment(question, **self._terms()))

    async def list_audit(self, request: platform_pb2.ListAuditRequest) -> platform_pb2.ListAuditReply:
        return await self._ask(self._stub().ListAudit(request, **self._terms()))

    async def verify_audit(self) -> platform_pb2.AuditVerification:
        return await self._ask(self._stub().VerifyAudit(platform_pb2.VerifyAuditRequest(), **self._terms()))

    async def about(self) -> platform_pb2.PlatformDescription:
        return await self._ask(self._stub().Describe(platform_pb2.DescribePlatform(), **self._terms()))

    async def _ask(self, call: Awaitable[Answer]) -> Answer:
        return await asked(call, self._destination)

    async def _end(self) -> None:
        self.channels.stop_waiting()
        await self.references.close()
        await self.channels.close()

    def _stub(self) -> PlatformServiceAsyncStub:
        return PlatformServiceStub(self.channels.to(self._destination.address))

    def _terms(self) -> Terms:
        return Terms(metadata=authorization(self._destination.token), timeout=DEADLINE)
