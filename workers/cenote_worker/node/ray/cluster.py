"""The Ray cluster of a platform: joined, and with an agent on each of its machines."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

# Otherwise a lost connection silently starts a cluster of its own.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")

import ray
from ray.exceptions import AuthenticationError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cenote_security.auth.capability import RuntimeKey
from cenote_security.errors import UsageError
from cenote_security.loopback import is_loopback
from cenote_worker.node.machine import PREFIX, SHORT
from cenote_worker.node.ray.actor_calls import LOOKERS, LOOKS, THREADS, answers
from cenote_worker.node.ray.agent import NodeAgent
from cenote_worker.node.ray.host import NodeSettings, SetUpLog, like_ray
from cenote_worker.node.ray.value_copies import AGENT, LOOK_SECONDS, agents
from cenote_worker.runtime.patch_jobs import Patcher

DISSOLVE_SECONDS: Final = 15.0
"""Seconds for all machines together."""


CLIENT_TRIES: Final = 5
"""Tries of Ray's client server to start a process for this driver."""

_NO_SERVER: Final = "Starting Ray client server failed"


def join(address: str, platform: str) -> None:
    """Makes this process one of the cluster's drivers. platform: separates it from others on this cluster.

    Raises ConnectionError.
    """
    ending = signal.getsignal(signal.SIGTERM)
    try:
        _begin(address, f"cenote-{platform}")
    except (ConnectionError, AuthenticationError) as error:
        raise ConnectionError(_reason(str(error))) from error
    if threading.current_thread() is threading.main_thread():
        # Ray installs a handler there that exits without any cleanup.
        signal.signal(signal.SIGTERM, ending)


def _begin(address: str, namespace: str, tries: int = CLIENT_TRIES) -> None:
    """Connects. Ray's client server starts a process for each driver. Now and then that ends at once: it was forked
    while other threads were in gRPC. Then another one is requested.
    """
    try:
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            configure_logging=False,
            ignore_reinit_error=True,
        )
    except ConnectionError as error:
        if tries == 1 or _NO_SERVER not in str(error):
            raise
        _begin(address, namespace, tries - 1)


def _reason(said: str) -> str:
    """Ray's error in a line. Ray's client server sends a traceback, whose last line is the error."""
    lines = [line for line in said.strip().splitlines() if line.strip()] or ["it gives no reason"]
    if len(lines) > 1 and lines[1].startswith("Traceback"):
        return f"{lines[0].rstrip(': ')}: {lines[-1]}"
    return f"{lines[0]}{_token_hint()}"


def _token_hint() -> str:
    """Ray looks for a token only if RAY_AUTH_MODE says so, and reports a wrong one as a missing server."""
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return " with the token that RAY_AUTH_MODE=token has it take from RAY_AUTH_TOKEN_PATH, or ~/.ray/auth_token"
    return "; where it asks for a token, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH if that is no usual place"


def joined(address: str) -> str:
    """Where the cluster is that was joined by this address, which may be a word such as `auto`."""
    if address.startswith("ray://"):
        return address
    found: str = ray.get_runtime_context().gcs_address
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The common settings of the agents of all nodes.

    folder: for descriptor stores, the same path on each machine. host: the address at which hosts listen; empty for
    their node's. hosts: processes of a node that serve runtimes, at most. room: bytes of memory for shared values of
    a node, None for half of its memory. only_node: the name of the only machine; empty where each names itself.
    secured: nodes on the loopback too; all others are in any case. clients: see Secured. patcher: see RuntimeServer;
    a function of a module. by_places: machines take as many runtimes as their custom resource PLACES says, and those
    without it none. set_up_log: of all processes of the nodes.
    """

    folder: Path
    key: RuntimeKey
    host: str = ""
    hosts: int
    room: int | None
    only_node: str = ""
    secured: bool = False
    clients: bool = True
    patcher: Patcher | None = None
    by_places: bool = False
    set_up_log: SetUpLog = like_ray


PLACES: Final = "cenote"
"""The custom resource of Ray that says how many runtimes a machine takes. Its agent holds all of it, so that what
waits for room finds none where a platform is, and Ray's autoscaler adds a machine."""

HEAD: Final = "node:__internal_head__"
"""The resource by which Ray marks the machine of a cluster's head, which no autoscaler removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayMachine:
    """A machine of the cluster that may have an agent. places: see ClusterNode. head: Ray's head is there."""

    facts: dict[str, Any] = field(repr=False)
    places: int | None
    head: bool


def machines(settings: AgentSettings) -> dict[str, RayMachine]:
    """Those that live and may have an agent, by the short ids of their raylets."""
    return {
        node["NodeID"][:SHORT]: RayMachine(
            facts=node, places=_places(settings, node), head=HEAD in node["Resources"]
        )
        for node in _nodes()
        if node["Alive"] and _places(settings, node) != 0
    }


def ensure_agents(
    settings: AgentSettings, found: Mapping[str, RayMachine], without: Collection[str]
) -> dict[str, Any]:
    """An agent on each of these machines, by the short id of its raylet. Running ones stay.

    without: raylets that get none.
    """
    return {
        raylet: _agent(_settings(settings, machine.facts), machine.facts["NodeID"])
        for raylet, machine in found.items()
        if raylet not in without
    }


def check_lines(settings: AgentSettings) -> None:
    """Call this before taking over agents that a killed gateway has left: they keep the settings that they have.

    Raises UsageError where those differ from these. Agents that do not answer are skipped.
    """
    wanted = {node["NodeID"][:SHORT]: _settings(settings, node) for node in _nodes() if node["Alive"]}
    former: dict[str, tuple[bool, bool, bool]] = answers(
        {raylet: agent.lines.remote() for raylet, agent in agents().items() if raylet in wanted}, LOOK_SECONDS
    )
    for raylet, (secured, clients, limited) in former.items():
        if (secured, clients, limited) != (
            wanted[raylet].secured,
            wanted[raylet].clients,
            settings.by_places,
        ):
            how = f"{'with' if secured else 'without'} --tls, {'without' if clients else 'with'} --relay"
            how += ", with --wait-for-room" if limited else ""
            raise UsageError(
                f"runtimes that a killed platform has left here are served as it was started, {how}; start it like "
                f"that again, or end them with `cenote down` first"
            )


def dissolve() -> None:
    """Ends this platform's runtimes, shared values and actors on each machine; a stuck agent after a while."""
    there = list(agents().values())
    ends: list[Any] = [agent.dissolve.remote() for agent in there]
    if ends:
        ray.wait(ends, num_returns=len(ends), timeout=DISSOLVE_SECONDS)
    for agent in there:
        ray.kill(agent)


def leave() -> None:
    ray.shutdown()


def listening(settings: AgentSettings) -> dict[str, str]:
    """The address at which the hosts of each machine listen, by the short id of its raylet."""
    return {node["NodeID"][:SHORT]: _host(settings, node) for node in _nodes() if node["Alive"]}


def doomed() -> set[str]:
    """The short ids of raylets that Ray is about to remove, as autoscalers and clouds say beforehand. Not for a
    driver that has joined through Ray's client server.
    """
    return {node[:SHORT] for node in ray._private.state.state.get_draining_nodes()}


def _host(common: AgentSettings, node: dict[str, Any]) -> str:
    return common.host or str(node["NodeManagerAddress"])


def _settings(common: AgentSettings, node: dict[str, Any]) -> NodeSettings:
    host = _host(common, node)
    return NodeSettings(
        node=common.only_node,
        folder=str(common.folder / f"{PREFIX}{common.only_node}" if common.only_node else common.folder),
        listen=f"{host}:0",
        hosts=common.hosts,
        room=common.room,
        key=common.key,
        secured=common.secured or not is_loopback(host),
        clients=common.clients,
        patcher=common.patcher,
        places=_places(common, node),
        set_up_log=common.set_up_log,
    )


def _places(common: AgentSettings, node: dict[str, Any]) -> int | None:
    return int(node["Resources"].get(PLACES, 0)) if common.by_places else None


def _nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


@cache  # Ray looks at each method of a class that it is given, and all machines are looked at every second
def _agent_class() -> Any:
    remote: Any = ray.remote  # its types do not know groups
    return remote(concurrency_groups={LOOKS: LOOKERS})(NodeAgent)


def _agent(settings: NodeSettings, node: str) -> Any:
    return (
        _agent_class()
        .options(
            name=AGENT + node[:SHORT],
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            resources={PLACES: settings.places} if settings.places else {},
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=THREADS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        .remote(settings)
    )
