"""The agents on the machines of a Ray cluster: found, made and given back as machines come and go.

Machines never call the gateway. So the gateway asks their agents whether they want a certificate signed, by the
cluster's own calls, which need the cluster's token.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from cenote.gateway.tls.certificates import InternalTls
from cenote_security.errors import CenoteError, UnavailableError, UsageError
from cenote_worker.node.node import HostGone
from cenote_worker.node.ray.actor_calls import answer, answers
from cenote_worker.node.ray.cluster import (
    PLACES,
    AgentSettings,
    RayMachine,
    ensure_agents,
    listening,
    machines,
)
from cenote_worker.node.state_log import StateLog, first_line

log = logging.getLogger("cenote.gateway")

MOST_ASKED: Final = 100
"""Places that are asked for at once. Ray looks at each every few seconds; the rest follows as machines come."""
FRESH_FOR: Final = 1.0
"""Seconds for which the list of machines is cached."""

FIRST_SECONDS: Final = 45.0
"""Seconds for the first agent of a cluster to come up. No call waits for further ones."""

PAUSE: Final = 10.0
"""Seconds before a machine whose agent did not come up is tried again."""


DISSOLVE_SECONDS: Final = 15.0
"""Seconds for an agent to end what an idle machine still has: no runtime, but processes and a descriptor store."""


class RoomDemand:
    """A placement group for each place that lacks, which no present machine can give: agents hold theirs.

    Not in Ray's list of wishes (`request_resources`): that is one for a whole cluster, and stays after the process
    that has set it. These end with the gateway, however it ends. One group for all would be placed as a whole or not
    at all.
    """

    def __init__(self) -> None:
        self._asked: list[PlacementGroup] = []

    def ask(self, places: int) -> None:
        """Asks for so many places from now on, instead of what was asked before."""
        wanted = min(places, MOST_ASKED)
        while len(self._asked) > wanted:
            remove_placement_group(self._asked.pop())
        while len(self._asked) < wanted:
            self._asked.append(placement_group([{PLACES: 1}]))


class RayAgents:
    """Agents by node, looked up again when the list is old. A new machine counts once its agent is up.

    A machine that was given back has no agent, until runtimes wait for room.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._until = 0.0
        self._known: dict[str, Any] = {}
        self._agents: dict[str, Any] = {}
        """By raylet."""
        self._names: dict[str, str] = {}
        """Names of nodes, by raylet."""
        self._asked: dict[str, ray.ObjectRef[str]] = {}
        """Agents that have not yet reported the name of their node."""
        self._failed: dict[str, float] = {}
        """Raylets without an agent, and when the next agent is tried there."""
        self._wanted = 0
        """Runtimes that wait for room."""
        self._demand = RoomDemand()
        self._machines: dict[str, RayMachine] = {}
        """By raylet."""
        self._given_back: set[str] = set()
        """Raylets without an agent, since nothing used them."""
        self._leaving: set[str] = set()
        """Those of them whose agents are ending."""

    def host(self, node: str) -> str:
        """The address at which a node's servers listen, as the cluster reports it; empty if the node is gone."""
        if self._settings.only_node:
            return self._settings.host
        return listening(self._settings).get(self.raylet(node), "")

    def raylet(self, node: str) -> str:
        """The raylet of a node; empty if the node is gone."""
        with self._lock:
            return next((raylet for raylet, name in self._names.items() if name == node), "")

    def named(self, raylets: Collection[str]) -> set[str]:
        """The nodes of these raylets, as far as they are known."""
        with self._lock:
            return {self._names[raylet] for raylet in raylets if raylet in self._names}

    def want(self, runtimes: int) -> None:
        """See Nodes.want_room. The next look asks the cluster, which is due now."""
        with self._lock:
            if self._wanted != runtimes:
                self._wanted, self._until = runtimes, 0.0

    def give_back(self, node: str) -> None:
        """Ends what the platform has on a machine, so that an autoscaler can remove it. Its agent has left before."""
        raylet = self.raylet(node)
        with self._lock:
            agent = self._agents.get(raylet)
            if agent is None:
                return
            self._given_back.add(raylet)
            self._leaving.add(raylet)
            self._until = 0.0
        try:
            with suppress(HostGone, CenoteError):  # it has ended, or is removed with its machine
                answer(agent.dissolve.remote(), DISSOLVE_SECONDS)
            ray.kill(agent)
        finally:
            with self._lock:
                self._leaving.discard(raylet)

    def stays(self, node: str) -> bool:
        """Whether an autoscaler never removes the node: it has Ray's head."""
        found = self._machines.get(self.raylet(node))
        return found is not None and found.head

    def by_raylet(self) -> dict[str, Any]:
        """All agents, including those that have not yet reported the name of their node."""
        self()
        with self._lock:
            return self._agents

    def __call__(self) -> dict[str, Any]:
        """Raises UnavailableError while the cluster lists no machines."""
        with self._lock:
            if time.monotonic() > self._until:
                try:
                    self._known = self._looked()
                except (CenoteError, ValueError):  # a caller that uses an agent looks it up again
                    raise
                except Exception as error:  # of many kinds, while Ray's head is away
                    raise UnavailableError(f"the cluster does not answer: {first_line(error)}") from error
                self._until = time.monotonic() + FRESH_FOR
            return self._known

    def _looked(self) -> dict[str, Any]:
        now = time.monotonic()
        self._failed = {raylet: until for raylet, until in self._failed.items() if until > now}
        self._machines = found = machines(self._settings)
        self._given_back &= found.keys()
        if self._settings.by_places:
            self._ask_for_room(found)
        without = self._failed.keys() | self._given_back
        self._agents = agents = ensure_agents(self._settings, found, without)
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

    def _ask_for_room(self, found: Mapping[str, RayMachine]) -> None:
        """Asks for the places that waiting runtimes lack beside those of machines whose agents are starting. Idle
        machines are taken again first.
        """
        present = self._names.keys() | self._failed.keys() | self._given_back
        lacking = self._wanted - sum(found[raylet].places or 0 for raylet in found.keys() - present)
        for raylet in sorted(self._given_back - self._leaving):
            if lacking > 0:
                self._given_back.discard(raylet)
                lacking -= found[raylet].places or 0
        new = found.keys() - self._agents.keys() - self._failed.keys() - self._given_back
        # What was reserved on a new machine goes to its agent, which could not start otherwise.
        self._demand.ask(0 if new else max(lacking, 0))

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


LOOK_EVERY: Final = 0.5
"""Seconds for which a new machine waits. A call takes a millisecond."""

ANSWER_SECONDS: Final = 3.0
"""Seconds for all machines together."""


class Certifier:
    """agents: by node name. host: the address at which a node's servers listen, as the cluster reports it; "" for a
    node that has left. ending: set when the platform ends.
    """

    def __init__(
        self,
        agents: Callable[[], Mapping[str, Any]],
        host: Callable[[str], str],
        lines: InternalTls,
        ending: threading.Event,
    ) -> None:
        self._agents = agents
        self._host = host
        self._lines = lines
        self._ending = ending
        self._state = StateLog(log, "no certificates could be signed for the machines")

    def run(self) -> None:
        """Runs until the platform ends."""
        while not self._ending.wait(LOOK_EVERY):
            self._state.attempt(self.look, CenoteError)

    def look(self) -> None:
        """Signs all current requests."""
        agents = self._agents()
        asked: dict[str, bytes] = answers(
            {node: agent.certificate_request.remote(self._lines.authority) for node, agent in agents.items()},
            ANSWER_SECONDS,
            self._ending,
        )
        for node, certificate in signed(asked, self._host, self._lines).items():
            # Not awaited: if it does not arrive, the agent asks again.
            agents[node].certify.remote(certificate, self._lines.authority)


def signed(asked: Mapping[str, bytes], host: Callable[[str], str], lines: InternalTls) -> dict[str, bytes]:
    """Certificates of the nodes that need one. A bad request of one node does not affect the others.

    asked: their requests; empty for nodes that need none. host: see Certifier.
    """
    given = {}
    for node, request in asked.items():
        if request and (listens := host(node)):
            try:
                given[node] = lines.sign(request, listens)
            except UsageError as error:
                log.warning("node %s gets no certificate: %s", node, error)
    return given
