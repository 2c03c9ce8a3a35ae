"""The gateway's gRPC server, on its own thread and loop: PlatformService, the relays, health, reflection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import partial
from typing import Final, Self

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from cenote.gateway.api import relays
from cenote.gateway.api.branches import Branches
from cenote.gateway.api.calls import GatewayCalls
from cenote.gateway.api.creations import LOOK_EVERY as ROOM_EVERY
from cenote.gateway.api.creations import Creations, Forks, RoomQueue
from cenote.gateway.api.fair_turns import SlowWork
from cenote.gateway.api.health import LOOK_EVERY, SERVICE, Condition, Health, platform_checks
from cenote.gateway.api.metrics import PlatformMetrics
from cenote.gateway.api.platform_service import OPEN_CALLS, ClientRouting, PlatformService
from cenote.gateway.api.relays import NodeConnections, ReferenceRelay, RuntimeRelay
from cenote.gateway.api.runtime_registry import RuntimeRegistry
from cenote.gateway.audit.collector import AuditCollector
from cenote.gateway.environments.registry import EnvironmentRegistry
from cenote.gateway.jobs.registry import JobRegistry
from cenote.gateway.jobs.service import JobService, SharedJobValues
from cenote.gateway.machines.nodes import Nodes
from cenote.gateway.process.restart_policy import BEAT_EVERY
from cenote.gateway.store.runtimes import RuntimeRecord
from cenote.gateway.store.stores import Stores
from cenote.gateway.teams.registry import TeamRegistry
from cenote.gateway.teams.service import TeamService
from cenote.gateway.tls.certificates import InternalTls
from cenote.gateway.values.bounds import TenantBounds
from cenote_proto.v1 import job_pb2, platform_pb2, team_pb2
from cenote_proto.v1.job_pb2_grpc import add_JobServiceServicer_to_server
from cenote_proto.v1.platform_pb2_grpc import add_PlatformServiceServicer_to_server
from cenote_proto.v1.team_pb2_grpc import add_TeamServiceServicer_to_server
from cenote_security.errors import CenoteError, UnavailableError
from cenote_security.loopback import host_of, is_loopback
from cenote_worker.node.environment_jail import BuildSettings
from cenote_worker.node.state_log import StateLog
from cenote_worker.serving.grpc_server import ServerThread

log = logging.getLogger("cenote.gateway")

THREADS: Final = 32
"""Threads for blocking calls: the database, the disk, nodes that make runtimes."""

MAX_STREAMS: Final = 4_000
"""Streams and calls at once, of all clients together."""

SWEEP_EVERY: Final = 10.0
"""Seconds between two sweeps for the operator's changes and for runtimes whose lease has run out."""

COLLECT_EVERY: Final = 2.0
"""Seconds for which audit events of the machines may wait for their place in the log."""

BUILD_EVERY: Final = 0.5
"""Seconds between two looks at the environments that are being built."""

SETTLE: Final = 2.0
"""Seconds for collecting the last audit events at the end."""

RECHECK: Final = 15.0
"""Seconds for which a stream through the gateway outlives its token at most."""

STOP_PATIENCE: Final = 1.0
"""Seconds for which streams may continue when the server is closed."""


class GatewayServer:
    """Listens for clients of one platform. The caller closes the stores and nodes, after this."""

    def __init__(
        self,
        stores: Stores,
        nodes: Nodes,
        listen: str = "127.0.0.1:0",
        *,
        lines: InternalTls,
        relayed: bool = False,
        beat: Callable[[], None] = lambda: None,
        health: Health | None = None,
        credentials: grpc.ServerCredentials | None = None,
        bounds: TenantBounds | None = None,
        environments: EnvironmentRegistry | None = None,
        teams: TeamRegistry | None = None,
        jobs: JobRegistry | None = None,
        metrics: PlatformMetrics | None = None,
        recheck: float = RECHECK,
        wait_for_room: float = 0.0,
    ) -> None:
        """listen: `host:port`, port 0 for any free one. lines: to nodes. relayed: see ClientRouting.

        beat: called on the loop, see BEAT_EVERY. health: by default without the check of certificates. credentials:
        for TLS with clients. bounds: what tenants may ask for. environments: of tenants; none are built by default.
        teams, jobs: where the platform has them. metrics: of this platform. recheck: see GatewayCalls.
        wait_for_room: seconds, see RoomQueue.
        """
        self._room = RoomQueue(wait_for_room)
        self._stores = stores
        self._nodes = nodes
        self._lines = lines
        self._ways = ClientRouting(lines, relayed=relayed, public=not is_loopback(host_of(listen)))
        self._beat = beat
        self._health = health or Health(platform_checks(stores, stores.folder, nodes, dict))
        self._teams = teams
        self._jobs = jobs
        self._registry = RuntimeRegistry(stores, nodes, bounds)
        self._environments = environments or EnvironmentRegistry(stores, nodes, BuildSettings(), {})
        self._metrics = metrics or PlatformMetrics(stores)
        self._collector = AuditCollector(stores.recorder, nodes, stores.audit_folder, self._metrics)
        self._thread = ServerThread(
            "cenote-gateway",
            listen,
            credentials,
            threads=THREADS,
            most_calls=MAX_STREAMS,
            patience=STOP_PATIENCE,
        )
        self._states: dict[str, StateLog] = {}
        self._callers = GatewayCalls(stores, self._thread.pool, recheck)

    def start(self) -> str:
        """Starts listening and returns the address for clients. Raises UnavailableError if it cannot listen there."""
        former = self._registry.unmade()
        try:
            address = self._thread.start(self._fill, self._callers.enter, OPEN_CALLS)
        except UnavailableError as error:
            raise UnavailableError(f"{error} with --port") from None
        self._thread.carry_out(self._look_after_all(former))
        return address

    async def condition(self) -> Condition:
        """Whether the platform can be used now; callable from other loops."""
        asked = asyncio.run_coroutine_threadsafe(self._health.condition(), self._thread.loop)
        return await asyncio.wrap_future(asked)

    def settle(self) -> None:
        """Records outstanding audit events before the end, within SETTLE seconds."""
        if self._thread.serving:
            wait((self._thread.pool.submit(self._collector.collect),), SETTLE)

    def close(self) -> None:
        """Ends all streams and the thread. Closing twice is fine."""
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- on the loop --

    async def _fill(self, server: grpc.aio.Server) -> Sequence[str]:
        pool, opened = self._thread.pool, self._thread.opened
        await self._thread.health.set(SERVICE, health_pb2.HealthCheckResponse.NOT_SERVING)
        upstream = NodeConnections(self._lines)
        opened.push_async_callback(upstream.close)
        creations = Creations(self._registry, pool, self._room)
        opened.push_async_callback(creations.close)
        opened.push_async_callback(self._look_after, self._collector.collect)
        callers = self._callers
        slow = SlowWork()
        opened.callback(slow.close)
        forks = Forks(Branches(self._stores, self._nodes, self._registry), creations.admission, pool, slow)
        opened.push_async_callback(forks.close)
        self._metrics.queues |= {
            "starts": lambda: creations.waiting,
            "forks": lambda: forks.waiting,
            "slow_work": lambda: slow.waiting,
        }
        service = PlatformService(
            self._stores,
            self._nodes,
            self._registry,
            creations,
            forks,
            slow,
            callers,
            self._ways,
            self._health,
            self._room,
            self._environments,
        )
        add_PlatformServiceServicer_to_server(service, server)
        served = [
            platform_pb2.DESCRIPTOR.services_by_name["PlatformService"].full_name,
            relays.RUNTIME_SERVICE,
            relays.REFERENCE_SERVICE,
        ]
        runtimes = RuntimeRelay(self._stores, self._registry, callers, upstream)
        references = ReferenceRelay(self._stores, self._nodes, callers, upstream)
        if self._teams is not None:
            add_TeamServiceServicer_to_server(TeamService(self._stores, self._teams, callers), server)
            served.append(team_pb2.DESCRIPTOR.services_by_name["TeamService"].full_name)
        if self._jobs is not None:
            add_JobServiceServicer_to_server(JobService(self._stores, self._jobs, callers), server)
            served.append(job_pb2.DESCRIPTOR.services_by_name["JobService"].full_name)
            keeping = asyncio.create_task(SharedJobValues(self._jobs, callers, references.hold).keep())
            opened.callback(keeping.cancel)
        server.add_generic_rpc_handlers((runtimes.handler(), references.handler()))
        return served

    async def _look_after_all(self, former: Sequence[RuntimeRecord]) -> None:
        works = [self._live(), self._sweep(former), self._collect(), self._watch_health()]
        works.append(self._build_environments())
        if self._nodes.grows:
            works.append(self._ask_for_room())
        for work in works:
            self._thread.opened.callback(asyncio.create_task(work).cancel)

    async def _live(self) -> None:
        """Sends the heartbeat: a loop that is stuck serves no client, so a process without one may be ended."""
        while True:
            self._beat()
            await asyncio.sleep(BEAT_EVERY)

    async def _ask_for_room(self) -> None:
        """Says to the machines' cluster how many runtimes wait for room."""
        while True:
            await self._look_after(lambda: self._nodes.want_room(self._room.lacking))
            await asyncio.sleep(ROOM_EVERY)

    async def _watch_health(self) -> None:
        """Reports the condition to the log and to clients of gRPC's own health service."""
        states = health_pb2.HealthCheckResponse
        while True:
            ready = (await self._health.condition()).ready
            await self._thread.health.set(SERVICE, states.SERVING if ready else states.NOT_SERVING)
            await asyncio.sleep(LOOK_EVERY)

    async def _collect(self) -> None:
        while True:
            await self._look_after(self._collector.collect)
            await asyncio.sleep(COLLECT_EVERY)

    async def _build_environments(self) -> None:
        while True:
            await self._look_after(self._environments.tick)
            await asyncio.sleep(BUILD_EVERY)

    async def _sweep(self, former: Sequence[RuntimeRecord]) -> None:
        """Runs after the start, which must not wait for machines that are being started too.

        former: runtimes to end first.
        """
        await self._look_after(self._metrics.look)
        if self._teams is not None:
            await self._look_after(self._teams.clear_remains)
        if self._jobs is not None:
            await self._look_after(self._jobs.clear_remains)
        for record in former:
            await self._look_after(partial(self._registry.abandon, record))
        while True:
            await self._look_after(self._registry.sweep)
            await self._look_after(self._environments.sweep)
            await self._look_after(self._trim_audit_log)
            await self._look_after(self._metrics.look)
            if self._teams is not None:
                await self._look_after(self._teams.sweep)
            if self._jobs is not None:
                await self._look_after(self._jobs.clear_old)
            await asyncio.sleep(SWEEP_EVERY)

    def _trim_audit_log(self) -> None:
        self._stores.audit_log.trim()

    async def _look_after(self, work: Callable[[], None]) -> None:
        try:
            await self._thread.loop.run_in_executor(self._thread.pool, work)
        except Exception as error:  # noqa: BLE001  (such as a full disk, or Ray without its head: the next look may do better)
            self._state_of(work).failed(error, expected=isinstance(error, CenoteError))
        else:
            self._state_of(work).worked()

    def _state_of(self, work: Callable[[], None]) -> StateLog:
        name = getattr(work, "__qualname__", "")
        return self._states.setdefault(name, StateLog(log, "the platform could not look after its records"))
