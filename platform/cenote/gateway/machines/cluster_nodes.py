"""The machines of a platform while it runs: joins a cluster, starts an agent on each machine, ends both."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cenote.gateway.machines.joined_cluster import (
    JoinedCluster,
    check_address,
    clean_up,
    forget_joined,
    is_client_address,
    is_outdated,
    lost_client,
)
from cenote.gateway.machines.nodes import Nodes
from cenote.gateway.process.options import LOOPBACK, PlatformOptions
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.tls.certificates import InternalTls
from cenote.runtime.replay.patcher import HOST_PATCHER
from cenote_security.auth.capability import REFERENCES, MasterKey
from cenote_security.errors import CenoteError, UnavailableError

if TYPE_CHECKING:
    from cenote.gateway.machines.own_cluster_unsafe import OwnCluster
    from cenote.gateway.machines.ray_agents import RayAgents
    from cenote_worker.node.ray.cluster import AgentSettings

log = logging.getLogger("cenote.gateway")

HOSTS: Final = max(4, 2 * (os.cpu_count() or 1))
"""Maximum number of processes of one machine that serve runtimes. Each takes about sixty megabytes."""

END_SECONDS: Final = 5.0
"""Seconds for the calls to machines when the platform ends; the cluster must not be called after it was left."""

CENOTE: Final = version("cenote")
"""Gateway and machines have the same: what they say to each other changes with it."""

OWN_NODE: Final = "local"
"""The name of the machine of an own cluster, whatever Ray calls it: the next cluster has the same machine."""


@contextmanager
def ray_nodes(
    options: PlatformOptions, key: MasterKey, lines: InternalTls, ending: threading.Event
) -> Iterator[Nodes]:
    """The machines of a cluster: those of `ray_address`, else this one, in a cluster of its own.

    lines: to them. ending: see RayNodes.

    On exit all runtimes of the platform are ended, unless it keeps them for its successor, and an own cluster with
    them. Raises UnavailableError, UsageError for an invalid address, and for TLS settings that differ from those of
    existing runtimes.
    """
    if options.ray_address is not None:
        check_address(options.ray_address)
    with ExitStack() as opened:
        address = options.ray_address or _own_address(options, opened, ending)
        # Ray looks for the cluster's token as it is loaded; see `guard`.
        from cenote.gateway.machines.idle_machines import IdleMachines
        from cenote.gateway.machines.ray_agents import Certifier, RayAgents
        from cenote.gateway.machines.ray_nodes import RayNodes
        from cenote_worker.node.ray import cluster as ray_cluster
        from cenote_worker.node.ray.actor_watch import ActorWatch

        try:
            ray_cluster.join(address, key.id)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UnavailableError(f"the Ray cluster cannot be joined: {error}") from error
        opened.callback(ray_cluster.leave)
        here: JoinedCluster | None = None
        if options.ray_address is not None:
            if is_outdated(JoinedCluster.kept(options.state), CENOTE):
                log.warning("runtimes that another version of Cenote has left on the cluster are ended")
                ray_cluster.dissolve()
            here = JoinedCluster(
                address=ray_cluster.joined(options.ray_address), platform=key.id, version=CENOTE
            )
            here.keep(options.state)
        settings = _settings(options, key, lines)
        ray_cluster.check_lines(settings)
        agents = RayAgents(settings)
        # Now, so that they are ready for the first request.
        threading.Thread(target=_first_look, args=(agents,), name="cenote-agents", daemon=True).start()
        if lines.everywhere or options.ray_address is not None:
            certifier = Certifier(agents, agents.host, lines, ending)
            signing = threading.Thread(target=certifier.run, name="cenote-certifier", daemon=True)
            signing.start()
            opened.callback(signing.join, END_SECONDS)
            opened.callback(ending.set)
        if is_client_address(address):
            line = threading.Thread(
                target=_outlive_client, args=(ending,), name="cenote-cluster", daemon=True
            )
            line.start()
        watch = ActorWatch(agents.by_raylet)
        threading.Thread(target=watch.run, args=(ending,), name="cenote-watch", daemon=True).start()
        if options.ray_address is not None:
            idle = IdleMachines(
                agents,
                give_back=agents.give_back,
                doomed=lambda: set() if is_client_address(address) else agents.named(ray_cluster.doomed()),
                stays=agents.stays,
                after=options.release_after,
                ending=ending,
            )
            looking = threading.Thread(target=idle.run, name="cenote-idle-machines", daemon=True)
            looking.start()
            opened.callback(looking.join, END_SECONDS)
            opened.callback(ending.set)
        want = agents.want if settings.by_places else None
        yield RayNodes(key, agents, lambda node: watch.hangs(agents.raylet(node)), ending, want)
        # Not after an error, such as for a port that is taken: the runtimes of a former gateway are still there.
        if options.keep_runtimes and here is not None:
            replace(here, on_purpose=True).keep(options.state)
        else:
            ray_cluster.dissolve()
            forget_joined(options.state)


def _own_address(options: PlatformOptions, opened: ExitStack, ending: threading.Event) -> str:
    from cenote.gateway.machines.own_cluster_unsafe import guard, own_cluster

    guard(options.state)
    cluster, fresh = own_cluster(options.state)
    opened.push(partial(_end_own, options.state, fresh))
    threading.Thread(target=_outlive, args=(cluster, ending), name="cenote-cluster", daemon=True).start()
    return cluster.address


def _outlive(cluster: OwnCluster, ending: threading.Event) -> None:
    """Ends this process when its cluster dies. The next makes another, whose agent finds all runtimes in the
    descriptor store.
    """
    cluster.outlive()
    if not ending.is_set():
        log.error("the Ray cluster of this platform has died")
        os._exit(1)  # otherwise Ray would first look for its cluster for a minute


def _first_look(agents: RayAgents) -> None:
    with suppress(CenoteError, ValueError):  # the next look reports the error
        agents()


def _outlive_client(ending: threading.Event) -> None:
    """Ends this process when it loses its cluster; the next process joins it again, and finds all runtimes."""
    import ray

    if lost_client(ray.nodes, ending):
        os._exit(1)


def _end_own(state: StateFolder, fresh: bool, failed: type[BaseException] | None, *_: object) -> None:
    """After an error, a cluster that existed before stays: it may have runtimes of a former gateway."""
    if fresh or failed is None:
        clean_up(state)


def _settings(options: PlatformOptions, key: MasterKey, lines: InternalTls) -> AgentSettings:
    from cenote_worker.node.ray.cluster import AgentSettings

    return AgentSettings(
        folder=Path(options.state.path if options.ray_address is None else _shared_folder(key)),
        key=key.for_runtime(REFERENCES),
        host=LOOPBACK if options.ray_address is None else "",
        hosts=HOSTS,
        only_node=OWN_NODE if options.ray_address is None else "",
        room=options.shared_memory_bytes,
        secured=lines.everywhere,
        clients=not options.relayed,
        patcher=HOST_PATCHER,
        by_places=options.wait_for_room > 0,
        set_up_log=options.log_set_up(logging.WARNING),
    )


def _shared_folder(key: MasterKey) -> Path:
    """Exists on every machine of a cluster: for sockets and locks only."""
    return Path("/tmp") / f"cenote-{os.geteuid()}-{key.id}"
