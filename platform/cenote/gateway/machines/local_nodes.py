"""Nodes of a platform without a cluster: jails of this process, behind one server of its own."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from cenote.gateway.machines.nodes import MachineStatus, RuntimeLocation, RuntimeOrder, RuntimeStatus
from cenote.runtime.replay.patcher import HOST_PATCHER
from cenote_proto.v1 import runtime_pb2
from cenote_security.auth.capability import REFERENCES, MasterKey, RuntimeKey
from cenote_security.errors import CenoteError, UnavailableError, UnknownRuntimeError, UsageError
from cenote_security.ids import RuntimeId, TenantId
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import CheckpointError, IncompleteRestoreError
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.node.environment_builds import (
    BuildOrder,
    BuildReport,
    EnvironmentBuilds,
    environments_here,
)
from cenote_worker.node.machine import processors
from cenote_worker.node.node import Hibernate, HibernationThreads
from cenote_worker.node.value_store import ValueDisk
from cenote_worker.process.metrics import CLIENTS, DURABLE, RUNTIMES
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.branches import BUSY, ForkOrder, ForkPoint, StateCopy, carried_out, copied
from cenote_worker.runtime.state.image_seals import ImageSeals
from cenote_worker.runtime.state.storage import RuntimeStorage
from cenote_worker.serving.endpoints import Endpoints, Secured
from cenote_worker.serving.limits import SERVER_TIMEOUTS, ServerTimeouts
from cenote_worker.serving.references import LocalReferences
from cenote_worker.serving.relay import HostRelay
from cenote_worker.serving.rights import CapabilityRights
from cenote_worker.serving.server import RuntimeServer
from cenote_worker.supervisor.start import retire_environment
from cenote_worker.tenancy.audit_events import EventBatch, EventBuffer
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.tenancy.shared_quota import Limits
from cenote_worker.tenancy.usage import RuntimeUsage
from cenote_worker.wire import policies

log = logging.getLogger("cenote.gateway")

NODE: Final = "local"
REFERENCE_ROOM: Final = 4 << 30
"""Bytes of memory for all shared values together, by default; more values go to disk."""

LOOK_EVERY: Final = 1.0
"""Seconds between two checks for runtimes whose lease has run out."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Hosted:
    runtime: HostedRuntime
    tenant: TenantId
    lease: float
    keeping: RuntimeStorage


class LocalNodes:
    """Implements Nodes without a cluster. The runtimes end with this process; only their stored states stay.

    key: the keys of its runtimes are derived from it. room: bytes of memory for shared values. disk: a folder for
    further values; None for none. secured: see RuntimeServer. warm: prepares for runtimes of the default policy
    before the first request.
    """

    def __init__(
        self,
        key: MasterKey,
        *,
        room: int = REFERENCE_ROOM,
        disk: Path | None = None,
        warm: bool = False,
        secured: Secured | None = None,
        patience: ServerTimeouts = SERVER_TIMEOUTS,
    ) -> None:
        self._key = key
        self._keys: dict[str, tuple[RuntimeKey, ...]] = {REFERENCES: (key.for_runtime(REFERENCES),)}
        self._trail = EventBuffer(f"{NODE}/{secrets.token_hex(8)}")
        self._quotas = MachineQuotas(counts=self._trail.counts)
        self._quotas.states = self._states_of
        self._references = LocalReferences(
            room, quotas=self._quotas, spill=None if disk is None else ValueDisk(disk).write
        )
        self._server = RuntimeServer(
            CapabilityRights(self._keys),
            self._references,
            secured=secured,
            patience=patience,
            patcher=HOST_PATCHER,
        )
        self._lock = threading.Lock()
        self._hosted: dict[RuntimeId, _Hosted] = {}
        self._stores: dict[str, str] = {}
        """Stores of states, by tenant."""
        self._doors = Endpoints(components="", clients="")
        self._resting = HibernationThreads()
        self._builds = EnvironmentBuilds()
        self._closing = threading.Event()
        self._warming = threading.Thread(target=_warm, name="cenote-warm", daemon=True) if warm else None
        self._leases = threading.Thread(target=self._watch_leases, name="cenote-leases", daemon=True)

    def start(self) -> Self:
        """Raises UnavailableError where it cannot listen."""
        self._doors = self._server.start()
        self._leases.start()
        if self._warming is not None:
            self._warming.start()
        return self

    def close(self) -> None:
        """Ends all runtimes. Closing twice is fine."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._leases.join()
        if self._warming is not None:
            self._warming.join()
        self._server.close()
        with self._lock:
            hosted, self._hosted = list(self._hosted.values()), {}
        for each in hosted:
            each.runtime.close()
        self._references.close()
        self._quotas.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- Nodes --

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
        if node not in ("", NODE):
            raise UnavailableError(f"this platform has one machine, {NODE!r}, and no {node!r}; name no other")
        relay = HostRelay()
        wanted = policies.to_policy(runtime_pb2.Policy.FromString(policy))
        history, counts = keeping.record_of(runtime), self._trail.counts
        hosted = HostedRuntime(wanted, relay, name=runtime, history=history, counts=counts, tenant=tenant)
        with self._lock:
            self._stores[tenant] = keeping.store
        try:
            keeping.equip(hosted, partial(self._room, tenant), self._seals(tenant, runtime))
            if not hosted.refill.begins_with:
                hosted.start()  # a missing feature is reported now, not when a client attaches
            self._server.add(runtime, hosted, relay, self._books(tenant, runtime, wanted))
        except BaseException:
            hosted.close()
            raise
        self._enter(runtime, _Hosted(runtime=hosted, tenant=tenant, lease=lease, keeping=keeping))
        return self._place

    def _enter(self, runtime: RuntimeId, hosted: _Hosted) -> None:
        with self._lock:
            self._keys[runtime] = (self._key.for_runtime(runtime),)
            self._hosted[runtime] = hosted

    def fork(self, parent: RuntimeId, branches: Sequence[RuntimeOrder], order: ForkOrder) -> ForkPoint:
        source = self._find(parent).runtime
        try:
            with ExitStack() as undone, ExitStack() as held:
                with self._server.held(parent) if order.visits else nullcontext():
                    copy = held.enter_context(copied(source, order))
                carried_out([partial(self._branch, copy, branch, undone) for branch in branches])
                undone.pop_all()
        except OSError as error:
            raise UnavailableError(f"this machine has no room for the branches: {error}") from error
        return copy.point

    def _branch(self, copy: StateCopy, wanted: RuntimeOrder, undone: ExitStack) -> None:
        """undone: collects the steps that undo it."""
        runtime, relay = wanted.runtime, HostRelay()
        history = wanted.keeping.record_of(runtime)
        undone.callback(history.close)
        hosted = copy.runtime(relay, name=runtime, history=history)
        undone.callback(hosted.close)
        hosted.start()
        with self._lock:
            self._stores[wanted.tenant] = wanted.keeping.store
        room = partial(self._room, wanted.tenant)
        wanted.keeping.begin_with(hosted, room, self._seals(wanted.tenant, runtime))
        self._server.add(runtime, hosted, relay, self._books(wanted.tenant, runtime, hosted.policy))
        undone.callback(self._server.remove, runtime)
        self._enter(
            runtime,
            _Hosted(runtime=hosted, tenant=wanted.tenant, lease=wanted.lease, keeping=wanted.keeping),
        )
        undone.callback(self._leave, runtime)

    def _seals(self, tenant: TenantId, runtime: RuntimeId) -> ImageSeals:
        return ImageSeals(tenant, runtime, self._key.for_runtime(runtime).for_images)

    def _books(self, tenant: TenantId, runtime: RuntimeId, policy: SandboxPolicy) -> RuntimeUsage:
        return RuntimeUsage(tenant, runtime, policy, self._trail, self._quotas, self._references.stored)

    def locate(self, runtime: RuntimeId) -> RuntimeLocation:
        self._find(runtime)
        return self._place

    def delete(self, runtime: RuntimeId) -> None:
        hosted = self._leave(runtime)
        if hosted is None:
            raise UnknownRuntimeError(runtime)
        self._server.remove(runtime)
        hosted.runtime.close()

    def _leave(self, runtime: RuntimeId) -> _Hosted | None:
        with self._lock:
            self._keys.pop(runtime, None)
            return self._hosted.pop(runtime, None)

    def rest(self, runtime: RuntimeId) -> None:
        self._find(runtime).runtime.refill.rest()

    def release(self, runtime: RuntimeId) -> None:
        if self._find(runtime).runtime.running:
            raise UnavailableError(BUSY)
        self.delete(runtime)

    def drain(self, node: str, wanted: bool) -> dict[RuntimeId, bool]:  # noqa: ARG002
        raise UsageError(
            "this platform has one machine, and nothing can leave it; `cenote down` ends it, and durable runtimes "
            "wake after the next `cenote up`"
        )

    def want_room(self, runtimes: int) -> None:
        """No machines are added."""

    @property
    def grows(self) -> bool:
        return False

    def describe(self) -> list[MachineStatus]:
        count, size = self._references.used()
        with self._lock:
            runtimes = len(self._hosted)
        return [
            MachineStatus(
                id=NODE,
                address=self._doors.components,
                runtimes=runtimes,
                references=count,
                reference_bytes=size,
                processors=processors(),
                environments=environments_here(),
            )
        ]

    def build_environment(self, node: str, order: BuildOrder) -> BuildReport:  # noqa: ARG002
        return self._builds.look(order)

    def remove_environment(self, node: str, digest: str) -> bool:  # noqa: ARG002
        retire_environment(digest)
        return self._builds.remove(digest)

    def runtime(self, runtime: RuntimeId) -> RuntimeStatus:
        hosted = self._find(runtime)
        return RuntimeStatus(
            state="hibernated" if _is_asleep(hosted) else "ready",
            clients=self._server.attached(runtime),
            steps=hosted.runtime.step,
        )

    def reference_address(self, reference: str) -> str:  # noqa: ARG002
        return self._doors.components  # same error for others' references as for missing ones

    def clear(self, on_record: Callable[[], Collection[RuntimeId]]) -> None:
        """Does nothing: the only machine is never away."""

    def limit(self, limits: Mapping[TenantId, Limits]) -> None:
        self._quotas.limit(dict[str, Limits](limits.items()))

    def deeds(self, written: Mapping[str, int]) -> dict[str, list[EventBatch] | None]:
        with self._lock:
            hosted = dict(self._hosted)
        asleep, counts = sum(map(_is_asleep, hosted.values())), self._trail.counts
        counts.set(RUNTIMES, len(hosted) - asleep, "ready")
        counts.set(RUNTIMES, asleep, "hibernated")
        counts.set(DURABLE, sum(each.keeping.durable for each in hosted.values()))
        counts.set(CLIENTS, sum(map(self._clients, hosted)))
        return {NODE: [self._trail.read(written.get(self._trail.source, 0))]}

    def _clients(self, runtime: RuntimeId) -> int:
        with suppress(UnknownRuntimeError):  # it has ended since it was listed
            return self._server.attached(runtime)
        return 0

    # -- leases --

    @property
    def _place(self) -> RuntimeLocation:
        return RuntimeLocation(node=NODE, doors=self._doors)

    def _find(self, runtime: RuntimeId) -> _Hosted:
        with self._lock:
            if runtime not in self._hosted:
                raise UnknownRuntimeError(runtime)
            return self._hosted[runtime]

    def _watch_leases(self) -> None:
        while not self._closing.wait(LOOK_EVERY):
            with self._lock:
                hosted = list(self._hosted.items())
            due: dict[str, list[Hibernate]] = {}
            for name, each in hosted:
                _quietly(partial(self._look, name, each, due.setdefault(each.tenant, [])))
            self._resting.begin({tenant: rests for tenant, rests in due.items() if rests})

    def _look(self, runtime: RuntimeId, hosted: _Hosted, due: list[Hibernate]) -> None:
        """Ends it when its lease has run out. due: gets it when it has been idle for long enough to hibernate."""
        if hosted.lease and self._server.remove_idle(runtime, hosted.lease):
            self.delete(runtime)
        elif self._server.quiet(runtime) > hosted.keeping.rests_after:
            due.append(partial(_quietly, partial(self._rest, runtime, hosted)))

    def _rest(self, runtime: RuntimeId, hosted: _Hosted) -> None:
        hosted.runtime.refill.rest()
        if hosted.keeping.durable and self._server.remove_idle(runtime, 0.0):
            self.delete(runtime)  # here; it is in the store

    # -- states --

    def _room(self, tenant: str, size: int) -> AbstractContextManager[None]:
        """Reserves space for more bytes of a tenant's states."""
        return self._quotas.room(tenant, size, self._references.stored)

    def _states_of(self, tenant: str) -> int:
        store = self._stores.get(tenant)
        return CheckpointStore(store).size() if store else 0


def _is_asleep(hosted: _Hosted) -> bool:
    return not hosted.runtime.running and bool(hosted.runtime.refill.begins_with)


def _warm() -> None:
    """The first jail of a process waits for a second until numpy and pandas are imported; later ones do not."""
    hosted = HostedRuntime(SandboxPolicy(), HostRelay())
    try:
        hosted.start()
    except CenoteError as error:  # a client that requests a runtime gets the error again
        log.warning("no jail of the default policy can be had here: %s", error)
    finally:
        hosted.close()


def _quietly(work: Callable[[], None]) -> None:
    """Logs an error with one runtime, so that the others are still handled."""
    try:
        work()
    except IncompleteRestoreError:
        return  # it has values that would be lost
    except CheckpointError as error:
        log.warning("a runtime cannot be put to sleep: %s", error)
    except CenoteError:
        return  # it is in use, or its jail has ended, or it was deleted meanwhile
    except Exception:
        log.exception("a runtime cannot be looked after")
