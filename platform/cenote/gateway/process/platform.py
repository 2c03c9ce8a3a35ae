"""A platform in this process, made of its parts: the stores, the machines, the server.

Before anything starts, the listening address is checked. The user who starts a platform gets a tenant and a token, so
that nothing has to be configured. The token has every scope. If an earlier version made it, the scopes that are new
since are added; a token that a user made with other scopes and put in its place stays as it is.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cenote.doors.otlp import export_to
from cenote.gateway.api.health import Condition, Health, platform_checks
from cenote.gateway.api.http_interface import HttpInterface
from cenote.gateway.api.metrics import PlatformMetrics
from cenote.gateway.api.runtime_registry import RuntimeRegistry
from cenote.gateway.api.server import GatewayServer
from cenote.gateway.audit.events import Subject, token_changed
from cenote.gateway.environments.registry import EnvironmentRegistry
from cenote.gateway.jobs.registry import JobRegistry
from cenote.gateway.jobs.tables import JobWorkload
from cenote.gateway.machines.cluster_nodes import OWN_NODE, ray_nodes
from cenote.gateway.machines.local_nodes import REFERENCE_ROOM, LocalNodes
from cenote.gateway.machines.nodes import Nodes
from cenote.gateway.process.announcement import Announcer
from cenote.gateway.process.daemon_lock import DaemonLock, Running
from cenote.gateway.process.options import LOOPBACK, PlatformOptions
from cenote.gateway.process.service_manager import EndSignal
from cenote.gateway.store.state_locations import StateLocations, keep_store_url
from cenote.gateway.store.stores import Stores
from cenote.gateway.store.tenants import Tenant
from cenote.gateway.teams.registry import TeamRegistry
from cenote.gateway.teams.tables import TeamWorkload
from cenote.gateway.tls.certificates import InternalTls, called, transport
from cenote.gateway.values.bounds import TenantBounds
from cenote.gateway.values.principal import Principal
from cenote.gateway.work.processes import Orchestrators, ProcessOrchestrators
from cenote.gateway.work.settings import OrchestratorSettings
from cenote.gateway.work.workload import Workload
from cenote.runtime.remote.address import token_file
from cenote.runtime.remote.reconnection import remember
from cenote_security.auth.secret_files import create_secret_file, read_secret_file, replace_file
from cenote_security.auth.tokens import Scope
from cenote_security.errors import NotAuthenticatedError, UnavailableError, UnknownEntryError
from cenote_worker.environments.store import EnvironmentStore
from cenote_worker.serving.endpoints import Secured


def check_listening(host: str, port: int) -> None:
    """Raises UnavailableError for a name that does not resolve, for addresses of other machines, and for a port that
    is taken, or not allowed for this user.
    """
    problem = ""
    for family, address in _addresses(host, port):
        try:
            with socket.socket(family) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # despite ended connections
                sock.bind(address)
                return
        except OSError as error:
            problem = _problem(host, port, error)
    raise UnavailableError(problem)


def _problem(host: str, port: int, error: OSError) -> str:
    if error.errno in (errno.EADDRINUSE, errno.EACCES):
        why = "the port is taken" if error.errno == errno.EADDRINUSE else error.strerror
        return f"nothing can listen at {host}:{port}: {why}; choose another one with --port"
    return (
        f"{host} is no address of this machine ({error.strerror or error}); name one with --host, "
        f"or 0.0.0.0 for all that it has"
    )


def _addresses(host: str, port: int) -> Iterator[tuple[int, tuple[object, ...]]]:
    """Resolves a name; an address needs no resolver."""
    plain = host.strip("[]")
    with suppress(ValueError):
        family = socket.AF_INET6 if ip_address(plain).version == 6 else socket.AF_INET
        yield family, (plain, port)
        return
    try:
        found = socket.getaddrinfo(plain, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnavailableError(
            f"no machine is known as {host!r} ({error}); name an address of this machine with --host"
        ) from None
    for kind, _, _, _, address in found:
        yield kind, address


DEFAULT_TENANT: Final = "default"
_NOTE: Final = "of whoever started the platform"  # stored with tokens, and looked for there


def leave_token(stores: Stores, path: Path) -> None:
    """Makes sure that the file holds a valid token of this platform.

    An invalid one, such as another platform's, is moved to the same name with `.old` appended. Raises
    SecretFileError.
    """
    former = read_secret_file(path) if path.exists() else b""
    holder = _holder(stores, former) if former else None
    if holder is not None:
        _bring_up_to_date(stores, holder)
        return
    tenant = _default_tenant(stores)
    token = stores.tokens.issue(tenant.id, Scope, note=_NOTE)
    subject = Subject(tenant=tenant.id)
    stores.recorder.record(token_changed(subject, "issued", token.id, Scope)).result()
    if former:
        replace_file(path.with_name(f"{path.name}.old"), former)
        replace_file(path, token.text.encode())
    else:
        create_secret_file(path, token.text.encode())


def _holder(stores: Stores, text: bytes) -> Principal | None:
    try:
        return stores.tokens.authenticate(text.decode("utf-8", "replace").strip())
    except NotAuthenticatedError:
        return None


def _bring_up_to_date(stores: Stores, holder: Principal) -> None:
    """Adds the scopes that are new since to a token that this module made."""
    lacking = frozenset(Scope) - holder.scopes
    if not lacking or stores.tokens.get(holder.tenant, holder.token).note != _NOTE:
        return
    stores.recorder.record(
        token_changed(Subject(tenant=holder.tenant), "extended", holder.token, lacking)
    ).result()
    stores.tokens.extend(holder.tenant, holder.token, lacking)


def _default_tenant(stores: Stores) -> Tenant:
    try:
        return stores.tenants.get(DEFAULT_TENANT)
    except UnknownEntryError:
        return stores.tenants.create(DEFAULT_TENANT)


STDERR: Final = 2
"""Not `sys.stderr`, which need not be a file."""


def _nothing(*_: object) -> None:
    pass


@contextmanager
def platform(
    options: PlatformOptions,
    beat: Callable[[], None] = _nothing,
    changed: Callable[[Condition], None] = _nothing,
) -> Iterator[Running]:
    """A platform in this process, ready inside the context and ended after it.

    beat: called every second while its server works; must not block. changed: called with each new condition; must
    not block either. Raises UnavailableError when a platform already runs at this state folder, or the port is taken;
    and what its parts raise.
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
            _orchestrators(options, works(stores.database), nodes) for works in (TeamWorkload, JobWorkload)
        )
        for loops in (team_loops, job_loops):
            opened.push(partial(_end_works, loops))
        common = opened.enter_context(_common_environments(options))
        environments = EnvironmentRegistry(stores, nodes, options.builds, common)
        bounds = TenantBounds(preloads=options.preloads, environments=common, own=environments.own)
        runtimes = RuntimeRegistry(stores, nodes, bounds)
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
            environments=environments,
            metrics=metrics,
            teams=TeamRegistry(stores, options.state, runtimes, team_loops, options.model_endpoints, bounds),
            jobs=JobRegistry(stores, options.state, runtimes, job_loops, options.model_endpoints, bounds),
            wait_for_room=options.wait_for_room,
        )
        opened.enter_context(closing(server))
        opened.callback(ending.set)  # before the server closes: that waits for threads, and they for this
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
    """Runs a platform until SIGTERM or SIGINT. On the main thread. told: does not get `ready` if a signal came before
    that, since no client should connect to a platform that is ending.
    """
    end = EndSignal()
    # Dumps the stacks of its threads, before it is killed for hanging.
    faulthandler.register(signal.SIGUSR1, file=STDERR)
    with platform(options, told.beat, told.condition) as running:
        if not end.wait(0):
            told.ready(running)
            end.wait()
        told.ending()


def _states(options: PlatformOptions) -> StateLocations:
    """A local folder is not a store for other machines, unless the options say so."""
    here = options.state.store if options.ray_address is None else None
    store = options.store or str(here or "")
    states = StateLocations(store, here, options.retention)
    if store:
        states.check_store()
    keep_store_url(options.state, store)
    return states


def _nodes(
    options: PlatformOptions, stores: Stores, lines: InternalTls, ending: threading.Event
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
def _common_environments(options: PlatformOptions) -> Iterator[dict[str, str]]:
    """The current digests of the operator's environments, by name. They stay on this machine meanwhile.

    Raises UnknownEnvironmentError.
    """
    digests = dict[str, str]()
    with ExitStack() as held:
        for name in options.environments:
            kept = EnvironmentStore()  # here: a user without a home folder has no place for one
            digests[name] = kept.find(name).digest
            held.enter_context(kept.held(digests[name]))
        yield digests


def _secured(options: PlatformOptions, lines: InternalTls) -> Secured | None:
    if not lines.everywhere:
        return None
    return Secured(material=partial(lines.serving, LOOPBACK), clients=not options.relayed)


def _orchestrators(options: PlatformOptions, works: Workload, nodes: Nodes) -> Orchestrators:
    settings = OrchestratorSettings(
        state=options.state, kind=works.kind, otlp=options.otlp, log_json=options.log_json
    )
    if options.among_machines:
        from cenote.gateway.work.ray_actors import RayOrchestrators
        from cenote_worker.node.ray.actor_calls import raylet

        def is_drained() -> bool:
            here = OWN_NODE if options.ray_address is None else raylet()
            return any(node.id == here and node.draining for node in nodes.describe())

        return RayOrchestrators(settings, works, options.team_environment, is_drained=is_drained)
    return ProcessOrchestrators(settings, works, options.team_environment)


def _end_works(orchestrators: Orchestrators, failed: type[BaseException] | None, *_: object) -> None:
    orchestrators.close(orderly=failed is None)
