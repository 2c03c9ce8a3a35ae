"""PlatformService: a tenant's runtimes, by name.

Clients connect to their runtimes directly where they can reach them, and else through the gateway.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Final, TypeVar

from cenote.gateway.api.branches import FORK_SECONDS, ForkRequest
from cenote.gateway.api.calls import Context, GatewayCalls
from cenote.gateway.api.creations import WAKING_SECONDS, Creations, Forks, RoomQueue
from cenote.gateway.api.fair_turns import SlowWork
from cenote.gateway.api.health import Health
from cenote.gateway.api.runtime_registry import RuntimeRegistry, RuntimeRequest, subject_of
from cenote.gateway.audit.entries import AuditEntry
from cenote.gateway.audit.events import access_decided
from cenote.gateway.audit.reader import AuditCheck, AuditQuery, read_page
from cenote.gateway.environments.registry import EnvironmentRegistry
from cenote.gateway.machines.nodes import MachineStatus, Nodes, RuntimeLocation, RuntimeStatus
from cenote.gateway.store.runtimes import Parent, RuntimeRecord
from cenote.gateway.store.stores import Stores
from cenote.gateway.tls.certificates import InternalTls
from cenote.gateway.values.principal import Principal
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import platform_pb2, runtime_pb2
from cenote_proto.v1.platform_pb2_grpc import PlatformServiceServicer
from cenote_security.auth.tokens import Scope
from cenote_security.loopback import host_of, is_loopback
from cenote_security.policy import SandboxPolicy
from cenote_security.problems import Problems
from cenote_worker.checkpoints.retention import NOTHING_STORED, Retention
from cenote_worker.runtime.state.branches import ForkOrder
from cenote_worker.serving.limits import NEWEST_VERSION, OLDEST_VERSION
from cenote_worker.wire import option_messages, policies


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRoute:
    """A direct route for a client. authority: PEM of the server's certificate authority; empty without TLS."""

    address: str
    authority: str


class ClientRouting:
    """relayed: all clients go through the gateway. public: the gateway has clients on other machines."""

    def __init__(self, lines: InternalTls, *, relayed: bool, public: bool) -> None:
        self._lines = lines
        self._relayed = relayed
        self._public = public

    def direct(self, place: RuntimeLocation) -> ClientRoute | None:
        """None for a client that must use the gateway: only the gateway's machine reaches a loopback address."""
        address = place.doors.clients
        if self._relayed or not address or (self._public and is_loopback(host_of(address))):
            return None
        secured = self._lines.secures(address)
        return ClientRoute(address=address, authority=self._lines.authority.decode() if secured else "")


_STATES: Final = {
    "ready": platform_pb2.RuntimeDescription.READY,
    "lost": platform_pb2.RuntimeDescription.LOST,
    "hibernated": platform_pb2.RuntimeDescription.HIBERNATED,
}


def described(record: RuntimeRecord, facts: RuntimeStatus) -> platform_pb2.RuntimeDescription:
    """The description without credentials."""
    return make(
        platform_pb2.RuntimeDescription,
        id=record.id,
        name=record.name,
        policy=policies.without_secrets(runtime_pb2.Policy.FromString(record.policy)),
        state=_STATES[facts.state] if record.made else platform_pb2.RuntimeDescription.STARTING,
        created=record.created,
        clients=facts.clients,
        steps=facts.steps,
        reason=facts.reason,
        durable=record.durable,
        origin=_origin(record.parent) if record.parent else None,
    )


def _origin(parent: Parent) -> platform_pb2.Origin:
    return make(
        platform_pb2.Origin,
        runtime=parent.runtime,
        name=parent.name,
        step=parent.point.step,
        history=parent.point.history,
    )


def open_at(
    description: platform_pb2.RuntimeDescription, node: str, way: ClientRoute, capability: tuple[str, int]
) -> platform_pb2.RuntimeDescription:
    """The description with the runtime's address and the credentials for it."""
    description.node = utf8_text(node)
    description.address, description.authority = utf8_text(way.address), utf8_text(way.authority)
    text, description.expires = capability
    description.capability = utf8_text(text)
    return description


def described_node(facts: MachineStatus) -> platform_pb2.NodeDescription:
    return make(
        platform_pb2.NodeDescription,
        id=facts.id,
        address=facts.address,
        actors=facts.actors,
        runtimes=facts.runtimes,
        references=facts.references,
        reference_bytes=facts.reference_bytes,
        processors=facts.processors,
        silent=facts.silent,
        draining=facts.draining,
    )


T = TypeVar("T")

OPEN_CALLS: Final = ("/cenote_proto.v1.PlatformService/CheckHealth",)
"""Calls that take no token."""


class PlatformService(PlatformServiceServicer):
    def __init__(
        self,
        stores: Stores,
        nodes: Nodes,
        registry: RuntimeRegistry,
        creations: Creations,
        forks: Forks,
        slow: SlowWork,
        callers: GatewayCalls,
        ways: ClientRouting,
        health: Health,
        room: RoomQueue,
        environments: EnvironmentRegistry,
    ) -> None:
        self._room = room
        self._stores = stores
        self._environments = environments
        self._nodes = nodes
        self._registry = registry
        self._creations = creations
        self._forks = forks
        self._slow = slow
        self._callers = callers
        self._ways = ways
        self._health = health

    async def Describe(
        self, _request: platform_pb2.DescribePlatform, context: Context
    ) -> platform_pb2.PlatformDescription:
        return await self._answer(context, "describe", self._describe)

    async def CreateRuntime(
        self, request: platform_pb2.CreateRuntimeRequest, context: Context
    ) -> platform_pb2.RuntimeDescription:
        async def create(principal: Principal) -> platform_pb2.RuntimeDescription:
            record, place = await self._creations.create(principal, self._wish(principal, request))
            if place is None:
                return await self._opened(principal, record.id, partial=request.partial)
            made = replace(record, made=True)
            return await self._callers.on_thread(
                lambda: self._described_at(principal, made, RuntimeStatus(), place)
            )

        return await self._answer(context, "create", create)

    async def GetRuntime(
        self, request: platform_pb2.RuntimeName, context: Context
    ) -> platform_pb2.RuntimeDescription:
        async def get(principal: Principal) -> platform_pb2.RuntimeDescription:
            principal.require(Scope.RUNTIMES_READ)
            return await self._opened(principal, request.name, partial=request.partial, look=request.look)

        return await self._answer(context, "get", get)

    async def ListRuntimes(
        self, request: platform_pb2.ListRuntimesRequest, context: Context
    ) -> platform_pb2.ListRuntimesReply:
        async def page(principal: Principal) -> platform_pb2.ListRuntimesReply:
            listed, after = await self._callers.on_thread(
                lambda: self._registry.page(principal, request.page, request.limit)
            )
            return make(
                platform_pb2.ListRuntimesReply,
                runtimes=[described(record, facts) for record, facts in listed],
                next_page=after,
            )

        return await self._answer(context, "list", page)

    async def DeleteRuntime(
        self, request: platform_pb2.RuntimeName, context: Context
    ) -> platform_pb2.DeleteRuntimeReply:
        async def delete(principal: Principal) -> platform_pb2.DeleteRuntimeReply:
            principal.require(Scope.RUNTIMES_WRITE)
            record = await self._found(principal, request.name)
            await self._callers.on_thread(lambda: self._registry.delete(principal, record))
            return platform_pb2.DeleteRuntimeReply()

        return await self._answer(context, "delete", delete)

    async def MoveRuntime(
        self, request: platform_pb2.MoveRuntimeRequest, context: Context
    ) -> platform_pb2.MoveRuntimeReply:
        async def move(principal: Principal) -> platform_pb2.MoveRuntimeReply:
            principal.require(Scope.RUNTIMES_WRITE)
            record = await self._found(principal, request.name)
            place = await self._slow.carry_out(
                principal, lambda: self._registry.move(principal, record, request.node)
            )
            return make(platform_pb2.MoveRuntimeReply, node=place.node)

        return await self._answer(context, "move", move)

    async def DrainNode(
        self, request: platform_pb2.DrainNodeRequest, context: Context
    ) -> platform_pb2.DrainNodeReply:
        async def drain(principal: Principal) -> platform_pb2.DrainNodeReply:
            left = await self._callers.on_thread(
                lambda: self._registry.drain(principal, request.node, wanted=not request.resume)
            )
            return platform_pb2.DrainNodeReply(
                runtimes=[
                    make(platform_pb2.NodeRuntime, id=one.id, name=one.name, durable=one.durable)
                    for one in left
                ]
            )

        return await self._answer(context, "drain", drain)

    async def ForkRuntime(
        self, request: platform_pb2.ForkRuntimeRequest, context: Context
    ) -> platform_pb2.ForkRuntimeReply:
        async def fork(principal: Principal) -> platform_pb2.ForkRuntimeReply:
            principal.require(Scope.RUNTIMES_WRITE)
            parent = await self._found(principal, request.name)
            branches = await self._forks.fork(principal, _fork_wish(request, parent.id))
            described = [await self._opened(principal, branch.id) for branch in branches]
            return platform_pb2.ForkRuntimeReply(runtimes=described)

        return await self._answer(context, "fork", fork)

    async def BuildEnvironment(
        self, request: platform_pb2.BuildEnvironmentRequest, context: Context
    ) -> platform_pb2.EnvironmentDescription:
        async def build(principal: Principal) -> platform_pb2.EnvironmentDescription:
            return await self._callers.on_thread(lambda: self._environments.build(principal, request))

        return await self._answer(context, "environment.build", build)

    async def GetEnvironment(
        self, request: platform_pb2.EnvironmentName, context: Context
    ) -> platform_pb2.EnvironmentDescription:
        async def get(principal: Principal) -> platform_pb2.EnvironmentDescription:
            return await self._callers.on_thread(lambda: self._environments.get(principal, request.name))

        return await self._answer(context, "environment.get", get)

    async def ListEnvironments(
        self, request: platform_pb2.ListEnvironmentsRequest, context: Context
    ) -> platform_pb2.ListEnvironmentsReply:
        async def page(principal: Principal) -> platform_pb2.ListEnvironmentsReply:
            listed, after = await self._callers.on_thread(
                lambda: self._environments.page(principal, request.page, request.limit)
            )
            return make(platform_pb2.ListEnvironmentsReply, environments=listed, next_page=after)

        return await self._answer(context, "environment.list", page)

    async def RemoveEnvironment(
        self, request: platform_pb2.EnvironmentName, context: Context
    ) -> platform_pb2.RemoveEnvironmentReply:
        async def remove(principal: Principal) -> platform_pb2.RemoveEnvironmentReply:
            await self._callers.on_thread(lambda: self._environments.remove(principal, request.name))
            return platform_pb2.RemoveEnvironmentReply()

        return await self._answer(context, "environment.remove", remove)

    async def ListAudit(
        self, request: platform_pb2.ListAuditRequest, context: Context
    ) -> platform_pb2.ListAuditReply:
        async def page(principal: Principal) -> platform_pb2.ListAuditReply:
            principal.require(Scope.ADMIN)
            query = AuditQuery(
                tenant=principal.tenant, kind=request.kind, refused=request.refused, runtime=request.runtime
            )
            found = await self._callers.on_thread(
                lambda: read_page(self._stores.audit_folder, query, request.page, request.limit)
            )
            records = [_audited(entry) for entry in found.entries]
            return make(platform_pb2.ListAuditReply, records=records, next_page=found.following)

        return await self._answer(context, "audit.list", page)

    async def VerifyAudit(
        self, _request: platform_pb2.VerifyAuditRequest, context: Context
    ) -> platform_pb2.AuditVerification:
        async def check(principal: Principal) -> platform_pb2.AuditVerification:
            principal.require(Scope.ADMIN)
            return _verified(await self._slow.carry_out(principal, self._stores.audit_checks.check))

        return await self._answer(context, "audit.verify", check)

    async def CheckHealth(
        self, _request: platform_pb2.HealthQuestion, _context: Context
    ) -> platform_pb2.HealthReport:
        condition = await self._health.condition()
        causes = [
            make(platform_pb2.HealthCause, subject=cause.subject, text=cause.text, warning=cause.warning)
            for cause in condition.causes
        ]
        return make(platform_pb2.HealthReport, ready=condition.ready, causes=causes)

    def _wish(self, principal: Principal, request: platform_pb2.CreateRuntimeRequest) -> RuntimeRequest:
        """Raises UsageError or RejectedError with all problems."""
        wrong, policy = Problems(), SandboxPolicy()
        if request.HasField("policy"):
            with wrong.noting():
                policy = policies.to_requested_policy(request.policy)
        retention = NOTHING_STORED
        with wrong.noting():
            retention = option_messages.read_options(Retention, request)
        wish = RuntimeRequest(
            name=request.name,
            policy=policy,
            attach=request.attach,
            key=request.key,
            lease=request.lease,
            retention=retention,
        )
        self._registry.check(principal, wish, wrong)
        wrong.raise_all()
        return wish

    async def _answer(self, context: Context, action: str, work: Callable[[Principal], Awaitable[T]]) -> T:
        async with self._callers.served(context, action) as principal:
            return await work(principal)
        raise AssertionError("a call that failed was ended")

    async def _describe(self, principal: Principal) -> platform_pb2.PlatformDescription:
        sees = Scope.MACHINES in principal.scopes
        nodes = await self._callers.on_thread(self._nodes.describe) if sees else []
        return make(
            platform_pb2.PlatformDescription,
            software=f"cenote {version('cenote')}",
            oldest_version=OLDEST_VERSION,
            newest_version=NEWEST_VERSION,
            tenant=principal.tenant_name,
            scopes=sorted(principal.scopes),
            nodes=map(described_node, nodes),
            wait_for_room=self._room.patience,
        )

    async def _found(self, principal: Principal, name: str) -> RuntimeRecord:
        """Looks the runtime up once its creation is over."""
        record = await self._callers.on_thread(lambda: self._registry.find(principal, name))
        if record.made:
            return record
        await self._creations.made(record.id)
        return await self._callers.on_thread(lambda: self._registry.find(principal, record.id))

    async def _opened(
        self, principal: Principal, name: str, *, partial: bool = False, look: bool = False
    ) -> platform_pb2.RuntimeDescription:
        """The description with what a client needs to connect directly, if it may. partial, look: see RuntimeName."""
        if partial:  # values that cannot be restored are then lost for all clients
            principal.require(Scope.RUNTIMES_WRITE)
        record = await self._found(principal, name)
        return await self._room.carry_out(
            lambda: self._callers.on_thread(
                lambda: self._description(principal, record, partial=partial, look=look)
            ),
            most=WAKING_SECONDS,
        )

    def _description(
        self, principal: Principal, record: RuntimeRecord, *, partial: bool, look: bool
    ) -> platform_pb2.RuntimeDescription:
        facts, place = self._registry.facts(record), None
        if facts.state != "lost":
            place = self._registry.locate(record, partial=partial, wake=not look)
        return self._described_at(principal, record, facts, place)

    def _described_at(
        self,
        principal: Principal,
        record: RuntimeRecord,
        facts: RuntimeStatus,
        place: RuntimeLocation | None,
    ) -> platform_pb2.RuntimeDescription:
        description = described(record, facts)
        way = self._ways.direct(place) if place is not None else None
        if place is None or way is None:
            return description
        capability = self._stores.access.capability(principal, record)
        self._stores.recorder.record(access_decided(subject_of(principal, record.id), "capability"))
        return open_at(description, place.node, way, capability)


def _audited(entry: AuditEntry) -> platform_pb2.AuditRecord:
    event = entry.event
    return make(
        platform_pb2.AuditRecord,
        number=entry.number,
        at=entry.at / 1e6,
        kind=event.kind,
        token=event.token,
        runtime=event.runtime,
        facts=json.dumps(dict(event.facts)),
        hash=entry.hash,
    )


def _verified(check: AuditCheck) -> platform_pb2.AuditVerification:
    """Without the names of the gateway's files."""
    found = check.found
    broken, reason = (0, "") if found.broken is None else (max(found.broken.number, 1), found.broken.reason)
    return make(
        platform_pb2.AuditVerification,
        entries=found.last.number,
        hash=found.last.hash,
        broken=broken,
        reason=reason,
        verified=check.at,
    )


def _fork_wish(request: platform_pb2.ForkRuntimeRequest, parent: str) -> ForkRequest:
    at: int | str | None = None
    match request.WhichOneof("state"):
        case "step":
            at = request.step
        case "label":
            at = request.label
    return ForkRequest(
        name=parent,
        order=ForkOrder(
            at=at, deterministic=request.deterministic, partial=request.partial, patience=FORK_SECONDS
        ),
        count=request.count or 1,
        names=tuple(request.names),
        lease=request.lease,
        key=request.key,
    )
