"""The processes of a node that serve its runtimes, and the one that has its zygotes, as Ray actors.

A host is a shell over RuntimeHost. No code of a user or a model ever runs in it: code in a Ray process controls the
cluster. Jails outlive the process whose zygotes have started them.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray
from ray.actor import ActorHandle

from cenote_security.auth.capability import RuntimeKey
from cenote_security.errors import CenoteError
from cenote_security.policy import SandboxPolicy
from cenote_worker.descriptor_store.client import RETURN_SECONDS, DescriptorStoreClient
from cenote_worker.node.assignment import Assignment
from cenote_worker.node.certificate import HostCertificate
from cenote_worker.node.host import RuntimeHost, ServedRuntimeStatus, put_spare, take_spare
from cenote_worker.node.placement import HostId
from cenote_worker.node.ray.actor_calls import (
    LOOKERS,
    LOOKS,
    THREADS,
    ActorLookup,
    answer,
    ask,
    here,
    is_look,
    looked_up,
    raylet,
)
from cenote_worker.node.ray.value_copies import AGENT
from cenote_worker.node.state_log import StateLog
from cenote_worker.runtime.patch_jobs import Patcher
from cenote_worker.runtime.state.branches import ForkOrder, ForkPoint
from cenote_worker.serving.endpoints import Endpoints, Secured
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.start import JailStarter, start_ends
from cenote_worker.tenancy.audit_events import EventBatch

SWEEP_SECONDS: Final = 5.0

_log = logging.getLogger("cenote.cluster")


def nursery_name() -> str:
    """The name of the starter that belongs to this process's raylet."""
    return f"nursery/{raylet()}"


SetUpLog = Callable[[], object]
"""Sets up the log of a process. A function of a module, or a `partial` of one."""


def like_ray() -> None:
    """The log as Ray sets it up."""


class NurseryActor:
    """Starts jails for the hosts of a node. folder: of its descriptor store."""

    def __init__(self, folder: str, set_up_log: SetUpLog) -> None:
        set_up_log()
        self._descriptor_store = DescriptorStoreClient(Path(folder), RETURN_SECONDS)
        self._nursery = JailStarter(lingers=True)
        threading.Thread(target=self._warm, name="cenote-warm", daemon=True).start()
        threading.Thread(target=self._sweep, name="cenote-sweep", daemon=True).start()

    @is_look
    def is_there(self) -> None:
        """Answers at once, unless this process hangs."""

    def start_spare(self, policy: SandboxPolicy) -> str:
        """See put_spare."""
        return put_spare(self._descriptor_store, start_ends(policy, self._nursery))

    def retire(self, environment: str) -> None:
        """See JailStarter."""
        self._nursery.retire(environment)

    def _warm(self) -> None:
        """The first jail of a process waits until numpy and pandas are imported; the next ones do not."""
        try:
            supervisor = self._nursery.start(SandboxPolicy())
        except CenoteError as error:  # a client that requests a runtime gets the error again
            _log.warning("no jail of the default policy can be had here: %s", error)
        else:
            supervisor.end(JailExit(reason="closed"))

    def _sweep(self) -> None:
        state = StateLog(_log, "what jails have left could not be swept")
        while True:
            threading.Event().wait(SWEEP_SECONDS)
            try:
                self._nursery.sweep()
            except Exception as error:  # noqa: BLE001  (the next sweep may do better)
                state.failed(error, expected=isinstance(error, CenoteError))
            else:
                state.worked()


def ensure_nursery(folder: str, set_up_log: SetUpLog) -> Any:
    """The starter of jails on this machine; the running one, if there is one."""
    remote: Any = ray.remote  # its types do not know groups
    return (
        remote(concurrency_groups={LOOKS: LOOKERS})(NurseryActor)
        .options(
            name=nursery_name(),
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=THREADS,
            scheduling_strategy=here(),
        )
        .remote(folder, set_up_log)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What an agent is started with. listen: `host:port` of hosts, port 0 for any.

    folder: of the descriptor store; where no node is named, the one that contains those of all nodes, see `settle`.
    hosts: processes that serve runtimes, at most. room: see ValueStore. places: see ClusterNode. secured: with a
    requested certificate. clients: see Secured. key, patcher: see RuntimeHost. set_up_log: called once in each
    process of the node.
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
    places: int | None = None
    set_up_log: SetUpLog = like_ray


class RuntimeActor:
    """A RuntimeHost as a Ray actor."""

    def __init__(self, settings: NodeSettings, name: str) -> None:
        settings.set_up_log()
        self._settings = settings
        self._name = name
        self._ended = threading.Event()
        self._nursery = ActorLookup(lambda: ray.get_actor(nursery_name()))
        self._descriptor_store = DescriptorStoreClient(Path(settings.folder), RETURN_SECONDS)
        certificate = HostCertificate(self._descriptor_store)
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
        # Imported objects stay: scanning them at each full collection stops every client for 50 ms.
        gc.collect()
        gc.freeze()

    def hello(self) -> tuple[str, Endpoints, int]:
        """Name, endpoints, and pid."""
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

    def fact(self, runtime: str) -> ServedRuntimeStatus:
        return self._host.fact(runtime)

    def facts(self) -> list[ServedRuntimeStatus]:
        return self._host.facts()

    def deeds(self, written: Mapping[str, int]) -> EventBatch:
        return self._host.deeds(written)

    def last(self) -> None:
        """Never returns: a caller that waits for it learns when this process ends."""
        self._ended.wait()

    def _start_ends(self, policy: SandboxPolicy) -> JailEnds:
        """Calls the process that has the zygote."""
        key: str = ask(self._nursery.for_call(), "start_spare", policy)
        return take_spare(self._descriptor_store, key)


class DistantHost:
    """A RuntimeActor, as a Host of its node."""

    def __init__(self, id: HostId, doors: Endpoints, handle: ActorHandle[RuntimeActor]) -> None:
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

    def fact(self, runtime: str) -> ServedRuntimeStatus:
        found: ServedRuntimeStatus = looked_up(lambda: self._looks("fact").remote(runtime))
        return found

    def facts(self) -> list[ServedRuntimeStatus]:
        found: list[ServedRuntimeStatus] = looked_up(lambda: self._looks("facts").remote())
        return found

    def deeds(self, written: Mapping[str, int]) -> EventBatch:
        found: EventBatch = looked_up(lambda: self._looks("deeds").remote(written))
        return found

    def dismiss(self) -> None:
        ray.kill(self._handle)

    def _looks(self, what: str) -> Any:
        return getattr(self._handle, what).options(concurrency_group=LOOKS)


def _bring(reference: str, tenant: str) -> None:
    """Calls the agent, which does this for all hosts of the node."""
    ask(lambda: ray.get_actor(AGENT + raylet()), "bring", reference, tenant)
