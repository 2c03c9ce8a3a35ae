"""The machines of a Ray cluster, each with an agent of the platform. Machines come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from cenote.gateway.errors import NodeLeftError
from cenote.gateway.machines.nodes import MachineStatus, RuntimeLocation, RuntimeOrder, RuntimeStatus
from cenote_proto.v1 import runtime_pb2
from cenote_security.auth.capability import MasterKey
from cenote_security.errors import UnavailableError, UnknownReferenceError, UnknownRuntimeError
from cenote_security.ids import RuntimeId, TenantId
from cenote_worker.descriptor_store.client import ABANDONED_SECONDS
from cenote_worker.node.assignment import Assignment
from cenote_worker.node.environment_builds import BuildOrder, BuildReport
from cenote_worker.node.placement import NoRoomError
from cenote_worker.node.ray.actor_calls import answers, ask
from cenote_worker.node.ray.cluster import PLACES
from cenote_worker.runtime.state.branches import ForkOrder, ForkPoint
from cenote_worker.runtime.state.storage import RuntimeStorage
from cenote_worker.serving.endpoints import Endpoints
from cenote_worker.tenancy.audit_events import EventBatch
from cenote_worker.tenancy.shared_quota import Limits, parted

Agents = Callable[[], Mapping[str, Any]]
"""Returns the agents by node name, after making missing ones."""

LOOK_SECONDS: Final = 3.0
"""Seconds for all machines together to report their load; one that does not is given nothing more to do."""

DESCRIBE_SECONDS: Final = 4.0
"""Seconds for each of the two questions of `describe`, to machines that have answered before. Prometheus waits for
ten, and is to hear that a machine is silent; after that time it would take the whole platform for silent."""

NEWS_SECONDS: Final = 10.0
"""Seconds for all machines together for other calls: their agents may be about to come up."""

_HANGS: Final = (
    "the agent of machine {node} does not answer, and is replaced if that lasts; what runs there goes on; try again "
    "in half a minute"
)

_NO_ROOM: Final = (
    "no machine of the cluster has room for a further runtime; end some, or have the cluster add a machine with the "
    "custom resource {places!r}"
)

_DRAINED: Final = "all machines of the cluster are drained; add one, or `cenote node resume` one of them"

_SILENT: Final = (
    "no machine of the cluster answers now; try again in half a minute, `cenote status` tells more"
)

_NOT_BUILT: Final = (
    "no machine that takes runtimes now has environment {digest}; those of tenants are built on each machine in the "
    "background, others by the operator, as the same user: try again, or ask the operator"
)

_LEFT: Final = (
    "its machine, node {node}, has left the cluster, and its state with it; Ray, started there again within "
    "{minutes:.0f} minutes, brings back what has a name"
)


class RayNodes:
    """See Nodes. key: the keys of runtimes are derived from it. hangs: whether a node's agent hangs and is about to
    be replaced, so that calls must not wait for it. want: see RayAgents; None where machines have any
    number of places.

    ending: set when the platform ends. From then on no call waits for an agent, which may be stuck: calls raise
    UnavailableError.
    """

    def __init__(
        self,
        key: MasterKey,
        agents: Agents,
        hangs: Callable[[str], bool],
        ending: threading.Event,
        want: Callable[[int], None] | None = None,
    ) -> None:
        self._want = want
        self._key = key
        self._agents = agents
        self._hangs = hangs
        self._ending = ending
        self._lock = threading.Lock()
        self._homes: dict[str, str] = {}
        self._gone: dict[str, float] = {}
        """Nodes that have left, and when that was noticed."""
        self._seen: dict[str, Any] = {}
        """Each node's agent at the last look: a restarted raylet has another one."""
        self._limits: dict[TenantId, Limits] = {}
        self._told: set[str] = set()
        """Nodes that have received the current limits."""
        self._met: set[str] = set()
        """Nodes that have described themselves before."""

    def create(
        self,
        runtime: RuntimeId,
        tenant: TenantId,
        policy: bytes,
        *,
        lease: float,
        keeping: RuntimeStorage,
        node: str = "",
    ) -> RuntimeLocation:
        assignment = self._assignment(
            RuntimeOrder(runtime=runtime, tenant=tenant, policy=policy, lease=lease, keeping=keeping)
        )
        environment = runtime_pb2.Policy.FromString(policy).environment
        full = set[str]()
        while True:
            chosen = node or self._emptiest(environment, full)
            try:
                return self._placed(runtime, chosen, self._ask(chosen, "create", assignment))
            except (NodeLeftError, NoRoomError) as error:
                if node:
                    raise
                if isinstance(error, NoRoomError):  # others were quicker
                    full.add(chosen)

    def _assignment(self, new: RuntimeOrder) -> Assignment:
        return Assignment(
            runtime=new.runtime,
            tenant=new.tenant,
            policy=new.policy,
            lease=new.lease,
            created=time.time(),
            keeping=new.keeping,
            keys=(self._key.for_runtime(new.runtime),),
        )

    def fork(self, parent: RuntimeId, branches: Sequence[RuntimeOrder], order: ForkOrder) -> ForkPoint:
        node = self._home(parent)
        with self._lock:  # before the call: parts of a failed fork are on that node
            self._homes.update((branch.runtime, node) for branch in branches)
        point: ForkPoint = self._ask(node, "fork", parent, list(map(self._assignment, branches)), order)
        return point

    def locate(self, runtime: RuntimeId) -> RuntimeLocation:
        home = self._homes.get(runtime, "")
        for node in (home,) if self._is_here(home) else self._agents():
            try:
                return self._placed(runtime, node, self._ask(node, "locate", runtime))
            except UnknownRuntimeError:
                continue
        raise UnknownRuntimeError(runtime)

    def _placed(self, runtime: RuntimeId, node: str, doors: Endpoints) -> RuntimeLocation:
        with self._lock:
            self._homes[runtime] = node
        return RuntimeLocation(node=node, doors=doors)

    def delete(self, runtime: RuntimeId) -> None:
        self._ask(self._home(runtime), "end", runtime)
        with self._lock:
            self._homes.pop(runtime, None)

    def rest(self, runtime: RuntimeId) -> None:
        self._ask(self._home(runtime), "rest", runtime)

    def release(self, runtime: RuntimeId) -> None:
        self._ask(self._home(runtime), "release", runtime)
        with self._lock:
            self._homes.pop(runtime, None)

    def drain(self, node: str, wanted: bool) -> dict[RuntimeId, bool]:
        left: dict[RuntimeId, bool] = self._ask(node, "drain", wanted)
        return left

    def want_room(self, runtimes: int) -> None:
        if self._want is not None:
            self._want(runtimes)

    @property
    def grows(self) -> bool:
        return self._want is not None

    def describe(self) -> list[MachineStatus]:
        agents = self._agents()
        patience = NEWS_SECONDS if agents.keys() - self._met else DESCRIBE_SECONDS
        facts = answers(
            {node: agent.facts.remote() for node, agent in agents.items()}, patience, self._ending
        )
        places = answers({node: agents[node].any_address.remote() for node in facts}, patience, self._ending)
        self._met |= places.keys()
        return [
            MachineStatus(
                id=node,
                address=places[node],
                actors=facts[node].hosts,
                runtimes=facts[node].runtimes,
                references=facts[node].references,
                reference_bytes=facts[node].reference_bytes,
                processors=facts[node].processors,
                draining=facts[node].draining,
                places=facts[node].places,
                environments=facts[node].environments,
            )
            if node in places
            else MachineStatus(id=node, address="", silent=True)
            for node in agents
        ]

    def runtime(self, runtime: RuntimeId) -> RuntimeStatus:
        home = self._homes.get(runtime, "")
        try:
            facts = self._ask(self._home(runtime), "runtime", runtime)
        except (UnknownRuntimeError, NodeLeftError):
            if not home or self._is_here(home):
                raise
            gone = self._gone_for(home)
            if gone > ABANDONED_SECONDS:
                raise UnknownRuntimeError(runtime) from None
            reason = _LEFT.format(node=home, minutes=ABANDONED_SECONDS / 60)
            return RuntimeStatus(state="lost", reason=reason, lost_for=gone)
        state: Literal["ready", "hibernated"] = "hibernated" if facts.hibernated else "ready"
        return RuntimeStatus(state=state, clients=facts.clients, steps=facts.steps)

    def clear(self, on_record: Callable[[], Collection[RuntimeId]]) -> None:
        for node, agent in self._agents().items():
            if self._seen.setdefault(node, agent) != agent:  # Ray was restarted there
                self._clear(node, on_record)
                self._seen[node] = agent

    def _clear(self, node: str, on_record: Callable[[], Collection[RuntimeId]]) -> None:
        kept, known = self._ask(node, "kept"), on_record()
        for runtime in kept:
            home = self._homes.get(runtime, node)
            if runtime not in known or (home != node and self._is_here(home)):
                with suppress(UnknownRuntimeError):  # its lease ran out just now
                    self._ask(node, "end", runtime)

    def limit(self, limits: Mapping[TenantId, Limits]) -> None:
        """A machine gets no new runtimes until it has the limits. Raises if no machine gets them."""
        with self._lock:
            self._limits.update(limits)
        agents = self._agents()
        told = self._tell(agents.keys(), limits, NEWS_SECONDS)
        if agents and not told:
            first = next(iter(agents))
            self._ask(first, "limit", self._parts(limits))
            told.add(first)
        self._told = told

    def _tell(self, nodes: Collection[str], limits: Mapping[TenantId, Limits], patience: float) -> set[str]:
        """Returns the nodes that received the limits."""
        parts, agents = self._parts(limits), self._agents()
        asked = {node: agents[node].limit.remote(parts) for node in nodes if node in agents}
        return {*answers(asked, patience, self._ending)}

    def _parts(self, limits: Mapping[TenantId, Limits]) -> dict[TenantId, Limits]:
        return {tenant: parted(own, len(self._agents())) for tenant, own in limits.items()}

    def deeds(self, written: Mapping[str, int]) -> dict[str, list[EventBatch] | None]:
        agents = self._agents()
        told: dict[str, list[EventBatch]] = answers(
            {node: agent.deeds.remote(written) for node, agent in agents.items()}, NEWS_SECONDS, self._ending
        )
        return {node: told.get(node) for node in agents}

    def build_environment(self, node: str, order: BuildOrder) -> BuildReport:
        report: BuildReport = self._ask(node, "build_environment", order)
        return report

    def remove_environment(self, node: str, digest: str) -> bool:
        gone: bool = self._ask(node, "remove_environment", digest)
        return gone

    def reference_address(self, reference: str) -> str:
        node = reference.rpartition("_")[2]
        if not self._is_here(node):
            node = self._keeper_of_copy(reference)
        address: str = self._ask(node, "any_address")
        return address

    def _keeper_of_copy(self, reference: str) -> str:
        agents = self._agents()
        kept = answers(
            {node: agent.keeps.remote(reference) for node, agent in agents.items()},
            NEWS_SECONDS,
            self._ending,
        )
        for node, keeps in kept.items():
            if keeps:
                return node
        if len(kept) < len(agents):
            raise UnavailableError("a machine that may have this value does not answer; try again")
        raise UnknownReferenceError(reference)

    def _home(self, runtime: RuntimeId) -> str:
        """The runtime's node. Raises UnknownRuntimeError."""
        home = self._homes.get(runtime, "")
        return home if self._is_here(home) else self.locate(runtime).node

    def _is_here(self, node: str) -> bool:
        here = node in self._agents()
        if here:
            self._gone.pop(node, None)
        return here

    def _gone_for(self, node: str) -> float:
        """Seconds since it was noticed that a node has left."""
        now = time.monotonic()
        return now - self._gone.setdefault(node, now)

    def _emptiest(self, environment: str = "", full: Collection[str] = ()) -> str:
        """The machine with the fewest runtimes, of those that have the environment. full: nodes that have no place.

        Raises UnavailableError, NoRoomError.
        """
        here = self._agents().keys()
        self._told &= here  # one that comes back under its name has forgotten them
        if untold := here - self._told:  # it has just joined, or its agent was away
            with self._lock:
                limits = dict(self._limits)
            self._told |= self._tell(untold, limits, LOOK_SECONDS)
            if not here & self._told:
                self.limit(limits)  # this waits for one
        agents = {node: agent for node, agent in self._agents().items() if node in self._told}
        if not agents and self.grows:
            raise NoRoomError(_NO_ROOM.format(places=PLACES))
        if not agents:
            raise UnavailableError("no machine of the cluster takes runtimes now; `cenote status` tells more")
        facts = answers(
            {node: agent.facts.remote() for node, agent in agents.items()}, LOOK_SECONDS, self._ending
        )
        if not facts and environment:
            raise UnavailableError(_SILENT)
        if not facts:
            return next(iter(agents))
        free = [node for node in facts if not facts[node].draining and node not in full]
        if not free and not self.grows:
            raise UnavailableError(_DRAINED)
        if environment and free:
            free = [node for node in free if environment in facts[node].environments]
            if not free:
                raise UnavailableError(_NOT_BUILT.format(digest=environment[:12]))
        if self.grows:
            free = [node for node in free if has_place(facts[node].runtimes, facts[node].places)]
            if not free:
                raise NoRoomError(_NO_ROOM.format(places=PLACES))
        return min(free, key=lambda node: facts[node].runtimes)

    def _ask(self, node: str, what: str, *arguments: object) -> Any:
        """Calls a node's agent. All calls to agents are idempotent."""
        return ask(
            lambda: self._agent(node),
            what,
            *arguments,
            ending=self._ending,
            check=lambda: self._check(node),
        )

    def _check(self, node: str) -> None:
        if self._hangs(node):
            raise UnavailableError(_HANGS.format(node=node))

    def _agent(self, node: str) -> Any:
        agent = self._agents().get(node)
        if agent is None:
            raise NodeLeftError(node)
        return agent


def has_place(runtimes: int, places: int | None) -> bool:
    """Whether a machine takes one more runtime. places: at most; None for any number."""
    return places is None or runtimes < places
