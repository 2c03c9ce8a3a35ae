"""The machines of a Ray cluster, each with an agent of ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from cenote.gateway.errors import NodeLeftError
from cenote.gateway.nodes import NodeFacts, Place, RuntimeFacts
from cenote_security.capability import MasterKey
from cenote_security.errors import UnavailableError, UnknownReferenceError, UnknownRuntimeError
from cenote_security.ids import RuntimeId, TenantId
from cenote_worker.cluster.assignment import Assignment
from cenote_worker.cluster.ray_calls import ask
from cenote_worker.hosted.keeping import Keeping
from cenote_worker.tenancy.deeds import Batch
from cenote_worker.tenancy.shared_quota import Limits, parted

Agents = Callable[[], Mapping[str, Any]]
"""The agents by the short id of their node, those that are missing made."""


class RayNodes:
    """See Nodes. key: what the keys of runtimes are derived from.

    ending: set when the platform ends. From then on nobody waits for an agent, which may be stuck: what is asked for
    fails, with UnavailableError.
    """

    def __init__(self, key: MasterKey, agents: Agents, ending: threading.Event) -> None:
        self._key = key
        self._agents = agents
        self._ending = ending
        self._lock = threading.Lock()
        self._homes: dict[str, str] = {}

    def create(
        self,
        runtime: RuntimeId,
        tenant: TenantId,
        policy: bytes,
        *,
        lease: float,
        keeping: Keeping,
        node: str = "",
    ) -> Place:
        node = node or self._emptiest()
        assignment = Assignment(
            runtime=runtime,
            tenant=tenant,
            policy=policy,
            lease=lease,
            created=time.time(),
            keeping=keeping,
            keys=(self._key.for_runtime(runtime),),
        )
        address: str = self._ask(node, "create", assignment)
        with self._lock:
            self._homes[runtime] = node
        return Place(node=node, address=address)

    def locate(self, runtime: RuntimeId) -> Place:
        node = self._homes.get(runtime)
        if node is not None:
            return Place(node=node, address=self._ask(node, "locate", runtime))
        for node in self._agents():
            try:
                place = Place(node=node, address=self._ask(node, "locate", runtime))
            except UnknownRuntimeError:
                continue
            with self._lock:
                self._homes[runtime] = node
            return place
        raise UnknownRuntimeError(runtime)

    def delete(self, runtime: RuntimeId) -> None:
        self._ask(self._home(runtime), "end", runtime)
        with self._lock:
            self._homes.pop(runtime, None)

    def release(self, runtime: RuntimeId) -> None:
        self._ask(self._home(runtime), "release", runtime)
        with self._lock:
            self._homes.pop(runtime, None)

    def describe(self) -> list[NodeFacts]:
        return [self._described(node) for node in self._agents()]

    def runtime(self, runtime: RuntimeId) -> RuntimeFacts:
        facts = self._ask(self._home(runtime), "runtime", runtime)
        state: Literal["ready", "hibernated"] = "hibernated" if facts.hibernated else "ready"
        return RuntimeFacts(state=state, clients=facts.clients, steps=facts.steps)

    def limit(self, limits: Mapping[TenantId, Limits]) -> None:
        agents = self._agents()
        parts = {tenant: parted(own, len(agents)) for tenant, own in limits.items()}
        for node in agents:
            self._ask(node, "limit", parts)

    def deeds(self, written: Mapping[str, int]) -> dict[str, list[Batch] | None]:
        return {node: self._deeds(node, written) for node in self._agents()}

    def _deeds(self, node: str, written: Mapping[str, int]) -> list[Batch] | None:
        try:
            batches: list[Batch] = self._ask(node, "deeds", written)
        except UnavailableError:
            return None
        return batches

    def reference_address(self, reference: str) -> str:
        node = reference.rpartition("_")[2]
        if node not in self._agents():
            raise UnknownReferenceError(reference)
        address: str = self._ask(node, "any_address")
        return address

    def _home(self, runtime: RuntimeId) -> str:
        """Raises UnknownRuntimeError."""
        return self._homes.get(runtime) or self.locate(runtime).node

    def _described(self, node: str) -> NodeFacts:
        facts = self._ask(node, "facts")
        return NodeFacts(
            id=node,
            address=self._ask(node, "any_address"),
            actors=facts.hosts,
            runtimes=facts.runtimes,
            references=facts.references,
            reference_bytes=facts.reference_bytes,
        )

    def _emptiest(self) -> str:
        nodes = list(self._agents())
        if not nodes:
            raise UnavailableError("the cluster has no machine left; `cenote status` tells more")
        if len(nodes) == 1:
            return nodes[0]
        return min(nodes, key=lambda node: self._ask(node, "facts").runtimes)

    def _ask(self, node: str, what: str, *arguments: object) -> Any:
        """An agent's answer. All that it is asked may be asked twice."""
        return ask(lambda: self._agent(node), what, *arguments, ending=self._ending)

    def _agent(self, node: str) -> Any:
        agent = self._agents().get(node)
        if agent is None:
            raise NodeLeftError(node)
        return agent
