"""The Ray cluster of a platform: joined, and with an agent on each of its machines."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Else a lost connection silently starts a cluster of its own.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cenote_security.capability import RuntimeKey
from cenote_worker.cluster.ray_actors import NodeAgent, NodeSettings, agent_name
from cenote_worker.cluster.ray_calls import NAMESPACE, THREADS
from cenote_worker.hosted.patching import Patcher

SHORT: Final = 8
"""Characters of a node's id that tell the nodes of one cluster apart."""

DISSOLVE_SECONDS: Final = 15.0
"""For all machines together."""


def join(address: str) -> None:
    """Makes this process one of the cluster's drivers. Raises ConnectionError."""
    ending = signal.getsignal(signal.SIGTERM)
    ray.init(
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        configure_logging=False,
        ignore_reinit_error=True,
    )
    if threading.current_thread() is threading.main_thread():
        # Ray puts its own way out there, which leaves everything as it is.
        signal.signal(signal.SIGTERM, ending)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What the agents of all nodes have in common.

    folder: for keepers, on each machine the same path. host: what hosts listen at; empty for their node's address.
    hosts: processes of a node that serve runtimes, at most. room: bytes of shared values of a node. only_node: the
    name of the only machine; empty for those that Ray gives. patcher: see RuntimeServer; a function of a module.
    """

    folder: Path
    key: RuntimeKey
    host: str = ""
    hosts: int
    room: int
    only_node: str = ""
    patcher: Patcher | None = None


def ensure_agents(settings: AgentSettings) -> dict[str, Any]:
    """An agent on each machine that is there, by the name of its node. Those that run already are kept."""
    alive = [node for node in _nodes() if node["Alive"]]
    described = [(_settings(settings, node), node["NodeID"]) for node in alive]
    return {one.node: _agent(one, node) for one, node in described}


def dissolve(settings: AgentSettings) -> None:
    """Ends all runtimes, shared values and actors of ours, on each machine; an agent that is stuck, after a while."""
    agents = list(ensure_agents(settings).values())
    if ends := [agent.dissolve.remote() for agent in agents]:
        ray.wait(ends, num_returns=len(ends), timeout=DISSOLVE_SECONDS)
    for agent in agents:
        ray.kill(agent)


def leave() -> None:
    ray.shutdown()


def _settings(common: AgentSettings, node: dict[str, Any]) -> NodeSettings:
    name = common.only_node or node["NodeID"][:SHORT]
    return NodeSettings(
        node=name,
        folder=str(common.folder / f"node-{name}"),
        listen=f"{common.host or node['NodeManagerAddress']}:0",
        hosts=common.hosts,
        room=common.room,
        key=common.key,
        patcher=common.patcher,
    )


def _nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def _agent(settings: NodeSettings, node: str) -> Any:
    return (
        ray.remote(NodeAgent)
        .options(
            name=agent_name(settings.node),
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=THREADS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        .remote(settings)
    )
