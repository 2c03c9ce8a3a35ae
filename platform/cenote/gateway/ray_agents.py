"""The agents of a cluster's machines, under the names of their nodes: machines come and go."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

import ray

from cenote_security.errors import CenoteError, UnavailableError
from cenote_worker.cluster.node import HostGone
from cenote_worker.cluster.ray_calls import answer
from cenote_worker.cluster.ray_cluster import AgentSettings, ensure_agents, listening
from cenote_worker.cluster.state_log import first_line

log = logging.getLogger("cenote.gateway")

FRESH_FOR: Final = 1.0
"""Seconds for which the list of machines is taken to be true."""

FIRST_SECONDS: Final = 45.0
"""For the first agent of a cluster to come up. Further ones are waited for by nobody."""

PAUSE: Final = 10.0
"""Seconds before a machine is tried again on which no agent came up."""


class RayAgents:
    """Looked up anew when the last look was a while ago. A machine that has just come counts once its agent is up."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._until = 0.0
        self._known: dict[str, Any] = {}
        self._agents: dict[str, Any] = {}
        """By the raylets of their machines."""
        self._names: dict[str, str] = {}
        """Of nodes, by the raylets that carry them."""
        self._asked: dict[str, ray.ObjectRef[str]] = {}
        """Agents that have not yet said what their node is called."""
        self._failed: dict[str, float] = {}
        """Raylets without an agent, and when the next one is tried there."""

    def host(self, node: str) -> str:
        """What the servers of a node listen at, by what the cluster says; nothing of one that is not there."""
        if self._settings.only_node:
            return self._settings.host
        return listening(self._settings).get(self.raylet(node), "")

    def raylet(self, node: str) -> str:
        """The one that carries a node; nothing of one that is not there."""
        with self._lock:
            return next((raylet for raylet, name in self._names.items() if name == node), "")

    def by_raylet(self) -> dict[str, Any]:
        """Also those that have not yet said what their node is called."""
        self()
        with self._lock:
            return self._agents

    def __call__(self) -> dict[str, Any]:
        """Raises UnavailableError while the cluster tells of no machines."""
        with self._lock:
            if time.monotonic() > self._until:
                try:
                    self._known = self._looked()
                except (CenoteError, ValueError):  # who asks an agent looks for it again
                    raise
                except Exception as error:  # of many kinds, while Ray's head is away
                    raise UnavailableError(f"the cluster does not answer: {first_line(error)}") from error
                self._until = time.monotonic() + FRESH_FOR
            return self._known

    def _looked(self) -> dict[str, Any]:
        now = time.monotonic()
        self._failed = {raylet: until for raylet, until in self._failed.items() if until > now}
        self._agents = agents = ensure_agents(self._settings, without=self._failed.keys())
        if self._settings.only_node:
            self._names = dict(zip(agents, (self._settings.only_node,), strict=False))
            return {name: agents[raylet] for raylet, name in self._names.items()}
        self._names = {raylet: name for raylet, name in self._names.items() if raylet in agents}
        self._asked = {raylet: name for raylet, name in self._asked.items() if raylet in agents}
        for raylet in agents.keys() - self._names.keys() - self._asked.keys():
            self._asked[raylet] = agents[raylet].name.remote()
        if self._asked:
            self._hear(0.0 if self._names else FIRST_SECONDS)
        return {name: agents[raylet] for raylet, name in self._names.items()}

    def _hear(self, patience: float) -> None:
        ready = set(ray.wait(list(self._asked.values()), num_returns=1, timeout=patience)[0])
        for raylet, name in list(self._asked.items()):
            if name in ready:
                del self._asked[raylet]
                self._heard(raylet, name)

    def _heard(self, raylet: str, name: ray.ObjectRef[str]) -> None:
        try:
            self._names[raylet] = answer(name)
        except (HostGone, CenoteError) as error:
            log.error("machine %s carries no runtimes: %s", raylet, error)
            self._failed[raylet] = time.monotonic() + PAUSE
