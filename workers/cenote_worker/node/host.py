"""A process of a node that serves runtimes: supervises their jails, and answers their clients.

Everything it has is in its node's descriptor store too, so another host continues when this one is killed.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from cenote_security.auth.capability import RuntimeKey
from cenote_security.errors import NameExistsError, UnavailableError, UnknownRuntimeError
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import StoreBusyError
from cenote_worker.checkpoints.retention import NOTHING_STORED, Retention
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.descriptor_store.client import RETURN_SECONDS, DescriptorStoreClient, DescriptorStoreWatch
from cenote_worker.node.assignment import KEY, Assignment
from cenote_worker.node.references import NodeReferences, ValueFetcher
from cenote_worker.process.metrics import CLIENTS, DURABLE, RUNTIMES
from cenote_worker.runtime.handover.stored_log import StoredHandoverLog
from cenote_worker.runtime.handover.takeover import adopt
from cenote_worker.runtime.patch_jobs import Patcher
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.branches import BUSY, ForkOrder, ForkPoint, StateCopy, carried_out, copied
from cenote_worker.serving.endpoints import Secured
from cenote_worker.serving.relay import HostRelay, holders_of
from cenote_worker.serving.rights import CapabilityRights
from cenote_worker.serving.server import RuntimeServer
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.tenancy.audit_events import EventBatch, EventBuffer
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.tenancy.usage import RuntimeUsage

END_PATIENCE: Final = 10.0
"""Seconds for a host that was killed to be gone, with its locks."""

_LOOK_EVERY: Final = 0.02

T = TypeVar("T")

QUOTAS: Final = "quotas"
"""The file in a node's folder where its processes count together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRuntimeStatus:
    """clients: attached, or gone only a moment ago. idle: seconds since the last one was seen.

    quiet: seconds without any call. hibernated: its state is stored, and it has no jail.
    """

    runtime: str
    tenant: str
    clients: int
    steps: int
    running: bool
    idle: float
    lease: float
    quiet: float = 0.0
    hibernated: bool = False
    retention: Retention = NOTHING_STORED


def _nothing() -> None:
    pass


@dataclass(slots=True, kw_only=True)
class _Bound:
    assignment: Assignment
    hosted: HostedRuntime
    kept: StoredHandoverLog
    refill: Callable[[], None] = _nothing


class RuntimeHost:
    """Thread-safe. Ends with its process, which its runtimes outlive.

    folder: of the node's descriptor store. room: see ValueStore. start_ends: starts jails, in the zygote's process.
    key: for capabilities on references of clients without a runtime here. secured, patcher: see RuntimeServer.
    """

    def __init__(
        self,
        *,
        node: str,
        folder: Path,
        listen: str,
        room: int | None,
        key: RuntimeKey,
        start_ends: Callable[[SandboxPolicy], JailEnds],
        elsewhere: ValueFetcher,
        secured: Secured | None = None,
        patcher: Patcher | None = None,
    ) -> None:
        self._descriptor_store = DescriptorStoreClient(folder, RETURN_SECONDS)
        self._refilled = DescriptorStoreClient(folder)
        """For entries that are put again after the store was replaced."""
        self._start_ends = start_ends
        self._lock = threading.Lock()
        self._bound: dict[str, _Bound] = {}
        self._binding: set[str] = set()
        self._keys: dict[str, Sequence[RuntimeKey]] = {key.runtime: (key,)}
        self._trail = EventBuffer(f"{node}/{secrets.token_hex(8)}")
        self._quotas = MachineQuotas(folder / QUOTAS, self._trail.counts)
        self._quotas.states = self._states_of
        self._stores: dict[str, str] = {}
        """The store of states, by tenant."""
        self.references = NodeReferences(self._descriptor_store, node, room, elsewhere, quotas=self._quotas)
        rights = CapabilityRights(self._keys)
        self._server = RuntimeServer(rights, self.references, listen, secured, patcher=patcher)
        self._watch = DescriptorStoreWatch(folder)
        self.doors = self._server.start()

    def bind(self, assignment: Assignment, *, begins: bool) -> None:
        """Serves a runtime from now on: what another host has left of it, else the stored state, else a fresh one.

        begins: whether it may be a new one. Raises NameExistsError when it is served here already, UnavailableError
        when another host still has it, UnknownRuntimeError when it had a state that cannot be found.
        """
        name, relay = assignment.runtime, HostRelay()
        with self._reserved(name):
            self._stores[assignment.tenant] = assignment.keeping.store
            # First: whatever becomes of it, it can be found, and ended.
            self._descriptor_store.put(KEY.format(name), assignment.record())
            hosted, kept = self._taken_up(assignment, relay, begins=begins)
            self._enter(_Bound(assignment=assignment, hosted=hosted, kept=kept), relay)

    @contextmanager
    def _reserved(self, runtime: str) -> Iterator[None]:
        """Raises NameExistsError for one that is served here, or about to be."""
        with self._lock:
            if runtime in self._bound or runtime in self._binding:
                raise NameExistsError(runtime)
            self._binding.add(runtime)
        try:
            yield
        finally:
            with self._lock:
                self._binding.discard(runtime)

    def fork(self, parent: str, branches: Sequence[Assignment], order: ForkOrder) -> ForkPoint:
        """Serves runtimes that begin with a state of one that is served here: all of them, or none is left.

        The assignment of each is put before anything else, so that a host that is killed meanwhile leaves nothing
        that cannot be found and ended. Raises UnknownRuntimeError, what `copied` raises, UnavailableError.
        """
        source = self._find(parent).hosted
        with ExitStack() as undone, ExitStack() as held:
            with self._server.held(parent) if order.visits else nullcontext():
                copy = held.enter_context(copied(source, order))
            carried_out([partial(self._begin_branch, copy, branch, undone) for branch in branches])
            undone.pop_all()
        return copy.point

    def _begin_branch(self, copy: StateCopy, assignment: Assignment, undone: ExitStack) -> None:
        with self._reserved(assignment.runtime):
            self._branch(copy, assignment, undone)

    def _branch(self, copy: StateCopy, assignment: Assignment, undone: ExitStack) -> None:
        """undone: gets the callbacks that undo it."""
        name, relay, keeping = assignment.runtime, HostRelay(), assignment.keeping
        self._descriptor_store.put(KEY.format(name), assignment.record())
        undone.callback(self._descriptor_store.drop, KEY.format(name))
        self._stores[assignment.tenant] = keeping.store
        kept = StoredHandoverLog.fresh(name, assignment.sandbox(), self._refilled, self._start_ends)
        with ExitStack() as opened:
            opened.callback(kept.close)
            history = keeping.record_of(name)
            opened.callback(history.close)
            hosted = copy.runtime(relay, name=name, start=kept.start_jail, legacy=kept, history=history)
            opened.pop_all()
        undone.callback(hosted.close)
        hosted.start()
        keeping.begin_with(hosted, partial(self._room, assignment.tenant), assignment.seals())
        self._enter(_Bound(assignment=assignment, hosted=hosted, kept=kept), relay)
        undone.callback(self._leave, name)

    def _enter(self, bound: _Bound, relay: HostRelay) -> None:
        """Serves it from now on."""
        assignment, name = bound.assignment, bound.assignment.runtime
        bound.refill = partial(self._refill, bound)
        with self._lock:
            self._keys[name] = assignment.keys
            self._bound[name] = bound
        self._watch.add(bound.refill)
        self._server.add(name, bound.hosted, relay, self._books(assignment))

    def _leave(self, runtime: str) -> _Bound:
        """Serves it no more. Raises UnknownRuntimeError."""
        with self._lock:
            bound = self._bound.pop(runtime, None)
            self._keys.pop(runtime, None)
        if bound is None:
            raise UnknownRuntimeError(runtime)
        self._watch.remove(bound.refill)
        self._server.remove(runtime)
        return bound

    def _books(self, assignment: Assignment) -> RuntimeUsage:
        return RuntimeUsage(
            assignment.tenant,
            assignment.runtime,
            assignment.sandbox(),
            self._trail,
            self._quotas,
            self.references.stored,
        )

    def _taken_up(
        self, assignment: Assignment, relay: HostRelay, *, begins: bool
    ) -> tuple[HostedRuntime, StoredHandoverLog]:
        name, policy, keeping = assignment.runtime, assignment.sandbox(), assignment.keeping
        room = partial(self._room, assignment.tenant)
        try:
            kept = _in_time(lambda: StoredHandoverLog.found(name, policy, self._refilled, self._start_ends))
        except UnknownRuntimeError:
            if begins or keeping.durable:
                return self._begun(assignment, relay)
            self._clear(name)
            raise
        with ExitStack() as opened:
            opened.callback(kept.leave)
            self._take_up(name, relay)
            history = _in_time(lambda: keeping.record_of(name))
            opened.callback(history.close)

            def equip(runtime: HostedRuntime) -> None:
                _in_time(lambda: keeping.equip(runtime, room, assignment.seals(), lives=True))
                opened.callback(runtime.refill.close)

            entries, counts = self._books(assignment).cell, self._trail.counts
            hosted = adopt(name, policy, relay, kept, history, equip, entries, counts, assignment.tenant)
            opened.pop_all()
        return hosted, kept

    def _clear(self, name: str) -> None:
        """Drops the entries of a runtime that no host can continue: its jail ends with that."""
        for key in self._descriptor_store.keys(f"runtime/{name}/"):
            self._descriptor_store.drop(key)

    def _take_up(self, name: str, relay: HostRelay) -> None:
        """Takes up the references of its former process, which was killed and released none."""
        for held in self.references.held_by(holders_of(name)):
            if not relay.take_up(held):
                self.references.release(held.reference, held.tenant, holder=held.holder)

    def _begun(self, assignment: Assignment, relay: HostRelay) -> tuple[HostedRuntime, StoredHandoverLog]:
        """A runtime without a jail: a fresh one, or one that exists in the store only."""
        name, policy, keeping = assignment.runtime, assignment.sandbox(), assignment.keeping
        with ExitStack() as opened:
            opened.callback(self._descriptor_store.drop, KEY.format(name))
            kept = StoredHandoverLog.fresh(name, policy, self._refilled, self._start_ends)
            opened.callback(kept.close)
            history = _in_time(lambda: keeping.record_of(name))
            opened.callback(history.close)
            hosted = HostedRuntime(
                policy, relay, kept.start_jail, name, kept, history, self._trail.counts, assignment.tenant
            )
            room = partial(self._room, assignment.tenant)
            _in_time(lambda: keeping.equip(hosted, room, assignment.seals()))
            opened.pop_all()
        return hosted, kept

    def _room(self, tenant: str, size: int) -> AbstractContextManager[None]:
        """Room for more bytes of a tenant's states."""
        return self._quotas.room(tenant, size, self.references.stored)

    def _states_of(self, tenant: str) -> int:
        store = self._stores.get(tenant)
        return CheckpointStore(store).size() if store else 0

    def end(self, runtime: str) -> None:
        """Ends a runtime for good. Raises UnknownRuntimeError."""
        self._leave(runtime).hosted.close()
        with suppress(UnavailableError):  # then nothing is stored
            self._descriptor_store.drop(KEY.format(runtime))

    def end_idle(self, runtime: str, seconds: float) -> bool:
        """Ends it if it has had no client for that long. Returns whether it did. Raises UnknownRuntimeError."""
        idle = self._server.remove_idle(runtime, seconds)
        if idle:
            self.end(runtime)
        return idle

    def rest(self, runtime: str, seconds: float = -1.0) -> bool:
        """Puts it to sleep if it was not called for that long. Returns whether it sleeps.

        The code in its jail decides how long that takes: callers that have other work must not wait for it. Raises
        UnknownRuntimeError, and what StateSource.rest raises.
        """
        bound = self._find(runtime)
        if self._server.quiet(runtime) <= seconds or bound.hosted.patches.busy:
            return False
        bound.hosted.refill.rest()
        return True

    def end_asleep(self, runtime: str) -> bool:
        """Leaves one that sleeps to its store: a durable one without clients needs nothing else.

        Returns whether it is no longer served here. Raises UnknownRuntimeError.
        """
        bound = self._find(runtime)
        if bound.hosted.running or not bound.assignment.keeping.durable:
            return False
        return self.end_idle(runtime, 0.0)

    def release(self, runtime: str) -> None:
        """Leaves a durable runtime that sleeps to its store, even with clients attached: they have to look for it
        elsewhere.

        Raises UnknownRuntimeError; UnavailableError for one that does not sleep any more: then it goes on here.
        """
        if self._find(runtime).hosted.running:
            raise UnavailableError(BUSY)
        self.end(runtime)

    def fact(self, runtime: str) -> ServedRuntimeStatus:
        """Raises UnknownRuntimeError."""
        return self._fact(self._find(runtime))

    def facts(self) -> list[ServedRuntimeStatus]:
        """The status of all runtimes that are served here, without those that end meanwhile."""
        with self._lock:
            bound = list(self._bound.values())
        found: list[ServedRuntimeStatus] = []
        for one in bound:
            with suppress(UnknownRuntimeError):
                found.append(self._fact(one))
        return found

    def deeds(self, written: Mapping[str, int]) -> EventBatch:
        """The events of this host, for the record. written: by source, up to where all is recorded."""
        facts, counts = self.facts(), self._trail.counts
        asleep = sum(fact.hibernated for fact in facts)
        counts.set(RUNTIMES, len(facts) - asleep, "ready")
        counts.set(RUNTIMES, asleep, "hibernated")
        counts.set(DURABLE, sum(fact.retention.durable for fact in facts))
        counts.set(CLIENTS, sum(fact.clients for fact in facts))
        return self._trail.read(written.get(self._trail.source, 0))

    def _find(self, runtime: str) -> _Bound:
        with self._lock:
            bound = self._bound.get(runtime)
        if bound is None:
            raise UnknownRuntimeError(runtime)
        return bound

    def _fact(self, bound: _Bound) -> ServedRuntimeStatus:
        name = bound.assignment.runtime
        return ServedRuntimeStatus(
            runtime=name,
            tenant=bound.assignment.tenant,
            clients=self._server.attached(name),
            steps=bound.hosted.step,
            running=bound.hosted.running,
            idle=self._server.idle(name),
            lease=bound.assignment.lease,
            quiet=self._server.quiet(name),
            hibernated=not bound.hosted.running and bool(bound.hosted.refill.begins_with),
            retention=Retention.of(bound.assignment.keeping),
        )

    def _refill(self, bound: _Bound) -> None:
        """Puts everything again: the descriptor store is a new one, and empty."""
        bound.kept.refill()
        self._refilled.put(KEY.format(bound.assignment.runtime), bound.assignment.record())


def _in_time(take: Callable[[], T]) -> T:
    """Waits for something that a former process may have locked until a moment ago."""
    until = time.monotonic() + END_PATIENCE
    while True:
        try:
            return take()
        except (UnavailableError, StoreBusyError):
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_EVERY)


_PLACE: Final = "spare/"


def put_spare(descriptor_store: DescriptorStoreClient, ends: JailEnds) -> str:
    """Puts a jail into the descriptor store, and returns the key by which it is fetched."""
    key = f"{_PLACE}{time.monotonic():.0f}/{secrets.token_hex(8)}"
    try:
        descriptor_store.put(key, ends.record(), ends.descriptors())
    finally:
        ends.close()
    return key


def take_spare(descriptor_store: DescriptorStoreClient, key: str) -> JailEnds:
    """Raises UnavailableError when it was given up meanwhile."""
    kept = descriptor_store.get(key)
    if kept is None:
        raise UnavailableError("the jail that was started for this runtime is gone; try again")
    descriptor_store.drop(key)
    return JailEnds.arrived(kept.record, kept.descriptors)


def sweep_spares(descriptor_store: DescriptorStoreClient, before: float) -> None:
    """Gives up those that were put before a time, on the monotonic clock, and were never fetched."""
    for key in descriptor_store.keys(_PLACE):
        if float(key.split("/")[1]) < before:
            descriptor_store.drop(key)
