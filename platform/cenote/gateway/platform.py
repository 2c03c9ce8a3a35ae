"""A platform in this process, from its parts: what it keeps, the machines, the server."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from cenote.doors.otlp import export_to
from cenote.gateway.announcement import Announcer
from cenote.gateway.bounds import TenantBounds
from cenote.gateway.cluster_nodes import ray_nodes
from cenote.gateway.component_lines import ComponentLines
from cenote.gateway.daemon_lock import DaemonLock, Running
from cenote.gateway.end_signal import EndSignal
from cenote.gateway.first_token import leave_token
from cenote.gateway.health import Condition, Health, platform_checks
from cenote.gateway.http_interface import HttpInterface
from cenote.gateway.jobs.registry import JobRegistry
from cenote.gateway.jobs.works import JobWorks
from cenote.gateway.listening import check_listening
from cenote.gateway.local_nodes import REFERENCE_ROOM, LocalNodes
from cenote.gateway.metrics import PlatformMetrics
from cenote.gateway.nodes import Nodes
from cenote.gateway.options import LOOPBACK, PlatformOptions
from cenote.gateway.orchestrators.processes import Orchestrators, ProcessOrchestrators
from cenote.gateway.orchestrators.works import Works
from cenote.gateway.registry import Registry
from cenote.gateway.server import GatewayServer
from cenote.gateway.states import States
from cenote.gateway.stores import Stores
from cenote.gateway.teams.registry import TeamRegistry
from cenote.gateway.teams.works import TeamWorks
from cenote.gateway.transport import called, transport
from cenote.runtime.remote.address import token_file
from cenote.runtime.remote.returning import remember
from cenote_worker.environments.store import EnvironmentStore
from cenote_worker.serving.secured import Secured

STDERR: Final = 2
"""And not `sys.stderr`, which need not be a file."""


def _nothing(*_: object) -> None:
    pass


@contextmanager
def platform(
    options: PlatformOptions,
    beat: Callable[[], None] = _nothing,
    changed: Callable[[Condition], None] = _nothing,
) -> Iterator[Running]:
    """A platform in this process, ready inside and ended behind.

    beat: called every second for as long as its server goes on; it never waits. changed: gets its condition, each
    time that is another one; it does not wait either. Raises UnavailableError when one runs
    at this state folder, or the port is taken; what its parts raise.
    """
    options.state.make()
    with ExitStack() as opened:
        lock = DaemonLock(options.state.lock)
        opened.callback(lock.release)
        running = Running(pid=os.getpid(), since=time.time(), relayed=options.relayed)
        lock.write(running)
        check_listening(options.host, options.port)  # a cluster takes ten seconds to start, and some to end
        secured = transport(options)
        if options.otlp:
            opened.callback(export_to(options.otlp, "cenote"))
        http = None if options.no_http else opened.enter_context(HttpInterface(options, secured.material))
        stores = opened.enter_context(Stores(options.state, _states(options), audit_keep=options.audit_keep))
        ending = threading.Event()
        nodes = opened.enter_context(_nodes(options, stores, secured.lines, ending))
        listen = f"{options.host}:{options.port}"
        team_loops, job_loops = (
            _orchestrators(options, works(stores.database)) for works in (TeamWorks, JobWorks)
        )
        for loops in (team_loops, job_loops):
            opened.push(partial(_end_works, loops))
        bounds = opened.enter_context(_bounds(options))
        runtimes = Registry(stores, nodes, bounds)
        metrics = PlatformMetrics(stores, by_tenant=options.metrics_tenants)
        server = GatewayServer(
            stores,
            nodes,
            listen,
            lines=secured.lines,
            relayed=options.relayed,
            beat=beat,
            health=Health(platform_checks(stores, options.state.path, nodes, secured.certificates), changed),
            credentials=secured.credentials,
            bounds=bounds,
            metrics=metrics,
            teams=TeamRegistry(stores, options.state, runtimes, team_loops, options.model_endpoints, bounds),
            jobs=JobRegistry(stores, options.state, runtimes, job_loops, options.model_endpoints, bounds),
        )
        opened.enter_context(closing(server))
        opened.callback(ending.set)  # before: the server waits for what its threads wait for
        opened.callback(server.settle)
        here, elsewhere = called(options.host, server.start())
        running = replace(running, address=here, elsewhere=elsewhere, authority=secured.authority)
        if http is not None:
            opened.callback(http.close)  # before the server that it calls
            running = replace(running, http=http.start(running, server.condition, metrics.samples))
        for loops in (team_loops, job_loops):
            loops.begin(running.address, secured.authority)
        leave_token(stores, token_file())
        remember(running.address)
        lock.write(running)
        yield running


def serve(options: PlatformOptions, told: Announcer) -> None:
    """The same until SIGTERM or SIGINT comes. On the main thread. told: not that it is ready if one came before that,
    since nobody is to connect to what is about to be gone.
    """
    end = EndSignal()
    # What its threads are at, before it is killed for hanging.
    faulthandler.register(signal.SIGUSR1, file=STDERR)
    with platform(options, told.beat, told.condition) as running:
        if not end.wait(0):
            told.ready(running)
            end.wait()
        told.ending()


def _states(options: PlatformOptions) -> States:
    """A folder of this machine is no store for others, unless somebody says that it is."""
    here = options.state.store if options.ray_address is None else None
    states = States(options.store or str(here or ""), here, options.retention)
    if options.store or here:
        states.check_store()
    return states


def _nodes(
    options: PlatformOptions, stores: Stores, lines: ComponentLines, ending: threading.Event
) -> AbstractContextManager[Nodes]:
    if options.without_ray:
        room = options.shared_memory_bytes
        room = REFERENCE_ROOM if room is None else room
        return LocalNodes(
            stores.master_key,
            room=room,
            disk=options.state.path,
            warm=True,
            secured=_secured(options, lines),
        )
    return ray_nodes(options, stores.master_key, lines, ending)


@contextmanager
def _bounds(options: PlatformOptions) -> Iterator[TenantBounds]:
    """With the environments that the names mean now; they stay on this machine meanwhile.

    Raises UnknownEnvironmentError.
    """
    digests = dict[str, str]()
    with ExitStack() as held:
        for name in options.environments:
            kept = EnvironmentStore()  # here: a user without a home folder has no place for one
            digests[name] = kept.find(name).digest
            held.enter_context(kept.held(digests[name]))
        yield TenantBounds(preloads=options.preloads, environments=digests)


def _secured(options: PlatformOptions, lines: ComponentLines) -> Secured | None:
    if not lines.everywhere:
        return None
    return Secured(material=partial(lines.serving, LOOPBACK), clients=not options.relayed)


def _orchestrators(options: PlatformOptions, works: Works) -> Orchestrators:
    if options.among_machines:
        from cenote.gateway.orchestrators.ray_actors import RayOrchestrators

        return RayOrchestrators(options.state, works, options.team_environment, otlp=options.otlp)
    return ProcessOrchestrators(
        options.state, works, options.team_environment, otlp=options.otlp, log_json=options.log_json
    )


def _end_works(orchestrators: Orchestrators, failed: type[BaseException] | None, *_: object) -> None:
    orchestrators.close(orderly=failed is None)
