"""A process that serves runtimes, as a Ray actor: a shell over RuntimeHost.

No code of a user or a model ever runs in it: whoever runs code in a Ray process owns the cluster.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle

from cenote_security.capability import RuntimeKey
from cenote_security.policy import SandboxPolicy
from cenote_worker.cluster.assignment import Assignment
from cenote_worker.cluster.host import RuntimeFacts, RuntimeHost
from cenote_worker.cluster.node_certificate import KeptCertificate
from cenote_worker.cluster.placement import HostId
from cenote_worker.cluster.ray_calls import LOOKS, answer, ask, looked_up, raylet
from cenote_worker.cluster.ray_copies import AGENT
from cenote_worker.cluster.ray_nursery import nursery_name
from cenote_worker.cluster.spares import take_spare
from cenote_worker.hosted.branching import ForkOrder, ForkPoint
from cenote_worker.hosted.patching import Patcher
from cenote_worker.keeper.client import RETURN_SECONDS, KeeperClient
from cenote_worker.serving.doors import Doors
from cenote_worker.serving.secured import Secured
from cenote_worker.supervisor.jail_ends import JailEnds
from cenote_worker.tenancy.deeds import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What an agent is started with. listen: `host:port` of hosts, port 0 for any.

    folder: of the keeper; where no node is named, the one that holds those of all nodes, see `settle`.
    hosts: processes that serve runtimes, at most. room: see KeptValues. secured: with a certificate that is asked
    for. clients: see Secured. key, patcher: see RuntimeHost.
    """

    node: str
    folder: str
    listen: str
    hosts: int
    room: int | None
    key: RuntimeKey
    secured: bool = False
    clients: bool = True
    patcher: Patcher | None = None


class RuntimeActor:
    """A RuntimeHost as a Ray actor."""

    def __init__(self, settings: NodeSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._ended = threading.Event()
        self._keeper = KeeperClient(Path(settings.folder), RETURN_SECONDS)
        certificate = KeptCertificate(self._keeper)
        self._host = RuntimeHost(
            node=settings.node,
            folder=Path(settings.folder),
            listen=settings.listen,
            room=settings.room,
            key=settings.key,
            start_ends=self._start_ends,
            elsewhere=_bring,
            secured=Secured(material=certificate, clients=settings.clients) if settings.secured else None,
            patcher=settings.patcher,
        )
        # What was imported stays: to look through it at each full collection stops every client for 50 ms.
        gc.collect()
        gc.freeze()

    def hello(self) -> tuple[str, Doors, int]:
        """Name, where it is reached, and its process."""
        return self._name, self._host.doors, os.getpid()

    def bind(self, assignment: Assignment, *, begins: bool) -> None:
        self._host.bind(assignment, begins=begins)

    def fork(self, parent: str, branches: Sequence[Assignment], order: ForkOrder) -> ForkPoint:
        return self._host.fork(parent, branches, order)

    def end(self, runtime: str) -> None:
        self._host.end(runtime)

    def end_idle(self, runtime: str, seconds: float) -> bool:
        return self._host.end_idle(runtime, seconds)

    def rest(self, runtime: str, seconds: float) -> bool:
        return self._host.rest(runtime, seconds)

    def end_asleep(self, runtime: str) -> bool:
        return self._host.end_asleep(runtime)

    def release(self, runtime: str) -> None:
        self._host.release(runtime)

    def fact(self, runtime: str) -> RuntimeFacts:
        return self._host.fact(runtime)

    def facts(self) -> list[RuntimeFacts]:
        return self._host.facts()

    def deeds(self, written: Mapping[str, int]) -> Batch:
        return self._host.deeds(written)

    def last(self) -> None:
        """Returns never: whoever waits for it learns when this process ends."""
        self._ended.wait()

    def _start_ends(self, policy: SandboxPolicy) -> JailEnds:
        """By the nursery, which has the zygote."""
        key: str = ask(lambda: ray.get_actor(nursery_name()), "start_spare", policy)
        return take_spare(self._keeper, key)


class DistantHost:
    """A RuntimeActor, as a Host of its node."""

    def __init__(self, id: HostId, doors: Doors, handle: ActorHandle[RuntimeActor]) -> None:
        self.id = id
        self.doors = doors
        self._handle = handle

    def bind(self, assignment: Assignment, *, begins: bool) -> None:
        answer(self._handle.bind.remote(assignment, begins=begins))

    def fork(self, parent: str, branches: Sequence[Assignment], order: ForkOrder) -> ForkPoint:
        return answer(self._handle.fork.remote(parent, branches, order))

    def end(self, runtime: str) -> None:
        answer(self._handle.end.remote(runtime))

    def end_idle(self, runtime: str, seconds: float) -> bool:
        return answer(self._handle.end_idle.remote(runtime, seconds))

    def rest(self, runtime: str, seconds: float = -1.0) -> bool:
        return answer(self._handle.rest.remote(runtime, seconds))

    def end_asleep(self, runtime: str) -> bool:
        return answer(self._handle.end_asleep.remote(runtime))

    def release(self, runtime: str) -> None:
        answer(self._handle.release.remote(runtime))

    def fact(self, runtime: str) -> RuntimeFacts:
        found: RuntimeFacts = looked_up(lambda: self._looks("fact").remote(runtime))
        return found

    def facts(self) -> list[RuntimeFacts]:
        found: list[RuntimeFacts] = looked_up(lambda: self._looks("facts").remote())
        return found

    def deeds(self, written: Mapping[str, int]) -> Batch:
        found: Batch = looked_up(lambda: self._looks("deeds").remote(written))
        return found

    def dismiss(self) -> None:
        ray.kill(self._handle)

    def _looks(self, what: str) -> Any:
        return getattr(self._handle, what).options(concurrency_group=LOOKS)


def _bring(reference: str, tenant: str) -> None:
    """By the agent, for all hosts of the node."""
    ask(lambda: ray.get_actor(AGENT + raylet()), "bring", reference, tenant)
