"""A node of a platform: its hosts, and which of them serves which runtime.

Runtimes are put to sleep on separate threads: the code in a jail decides how long that takes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from cenote_security.errors import CenoteError, UnavailableError, UnknownRuntimeError
from cenote_worker.descriptor_store.client import RETURN_SECONDS, DescriptorStoreClient, StoredEntry
from cenote_worker.node.assignment import KEY, Assignment
from cenote_worker.node.environment_builds import environments_here
from cenote_worker.node.host import QUOTAS, ServedRuntimeStatus, sweep_spares
from cenote_worker.node.machine import DrainMark, idle_seconds, processors
from cenote_worker.node.placement import HostId, Placement
from cenote_worker.node.references import NodeReferences
from cenote_worker.runtime.state.branches import ForkOrder, ForkPoint
from cenote_worker.serving.endpoints import Endpoints
from cenote_worker.tenancy.audit_events import EventBatch
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.tenancy.shared_quota import Limits

Hibernate = Callable[[], None]
"""Puts one runtime to sleep if that is still permitted. Raises nothing."""


class HibernationThreads:
    """One thread per tenant, which puts its runtimes to sleep one by one, so that no tenant delays others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[str] = set()

    def begin(self, due: Mapping[str, Sequence[Hibernate]]) -> None:
        """due: by tenant. Does not wait; a tenant whose thread still runs is skipped until the next time."""
        for tenant, rests in due.items():
            with self._lock:
                if tenant in self._busy:
                    continue
                self._busy.add(tenant)
            self._start(tenant, rests)

    def _start(self, tenant: str, rests: Sequence[Hibernate]) -> None:
        thread = threading.Thread(
            target=self._carry_out, args=(tenant, rests), name="cenote-resting", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the machine has no room for one more thread now
            self._over(tenant)

    def _carry_out(self, tenant: str, rests: Sequence[Hibernate]) -> None:
        try:
            for rest in rests:
                rest()
        finally:
            self._over(tenant)

    def _over(self, tenant: str) -> None:
        with self._lock:
            self._busy.discard(tenant)


SPARE_SECONDS: Final = 60.0
"""For how long a started jail waits for the host that requested it: a moment, unless that was killed."""

ARRIVAL: Final = 15.0
"""Seconds for a client to reach a runtime after it was located: until then the runtime is not ended as idle."""

QUIET: Final = 0.5
"""Seconds without a runtime that is bound, and with a processor to spare, before a further host is started: that
takes more than a processor-second, for which a client that makes or uses many runtimes would wait."""

TO_SPARE: Final = 0.5
"""Of a processor: of two, a client that sends one small cell after the other leaves as much, several do not."""

LONGEST_UNREST: Final = 10.0
"""Seconds by which the start of a further host is delayed at most."""

PATIENCE: Final = 30.0
"""Seconds that a runtime waits for a host, when there is none."""


GAP_SECONDS: Final = 2.0
"""Seconds for which one runtime of a drained node is tried again, while it has cells; then others have a turn."""

GAP_EVERY: Final = 0.02

HIRE_SECONDS: Final = 10.0
"""Seconds for requested hosts to come, when a node ends: killed on their way, they might leave something."""


class Host(Protocol):
    """A RuntimeHost in another process. Raises HostGone when that process has ended."""

    @property
    def id(self) -> HostId: ...
    @property
    def doors(self) -> Endpoints: ...
    def bind(self, assignment: Assignment, *, begins: bool) -> None: ...
    def fork(self, parent: str, branches: Sequence[Assignment], order: ForkOrder) -> ForkPoint: ...
    def end(self, runtime: str) -> None: ...
    def end_idle(self, runtime: str, seconds: float) -> bool: ...
    def rest(self, runtime: str, seconds: float = -1.0) -> bool: ...
    def end_asleep(self, runtime: str) -> bool: ...
    def release(self, runtime: str) -> None: ...
    def fact(self, runtime: str) -> ServedRuntimeStatus: ...
    def facts(self) -> list[ServedRuntimeStatus]: ...
    def deeds(self, written: Mapping[str, int]) -> EventBatch: ...
    def dismiss(self) -> None:
        """Ends its process, if that has not ended already. Never raises HostGone."""


class HostGone(Exception):
    """The process of a host has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    node: str
    hosts: int
    runtimes: int
    references: int
    reference_bytes: int
    processors: int = 0
    draining: bool = False
    places: int | None = None
    environments: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """What a node is used for. quiet: seconds since the last call for one of its runtimes, or since it had one.

    lasting: its runtimes that are not durable, and would be lost. durable: the number of others. references: shared
    values.
    """

    quiet: float
    lasting: frozenset[str] = frozenset()
    durable: int = 0
    references: int = 0


class ClusterNode:
    """Thread-safe. hire: requests a further host, which is announced with `joined` or `not_hired`; must not block.
    Raises RuntimeError where the machine has no thread left for it. places: runtimes at most; None for any number.
    """

    def __init__(
        self,
        *,
        node: str,
        folder: Path,
        most: int,
        hire: Callable[[], None],
        references: NodeReferences,
        places: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        idle: Callable[[], float] = idle_seconds,
    ) -> None:
        self.id = node
        self._descriptor_store = DescriptorStoreClient(folder, RETURN_SECONDS)
        self._hire = hire
        self._references = references
        self._quotas = MachineQuotas(folder / QUOTAS)
        self._placement = Placement(most, places)
        self._hosts: dict[HostId, Host] = {}
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._turns: dict[str, threading.Lock] = {}
        """Per runtime: binding it and locating it happen one after the other."""
        self._clock = clock
        self._idle = idle
        self._binding = 0
        """Number of runtimes that are being bound."""
        self._bound = -QUIET
        """When one was bound last."""
        self._resting = HibernationThreads()
        self._drain = DrainMark(folder)
        self._used = clock()
        """When it had a runtime last, as far as was looked."""
        self._told: dict[str, float] = {}
        """When a client was last told where each runtime is."""

    # -- hosts --

    def joined(self, host: Host, *, expected: bool) -> None:
        """A host runs, new or from before this node's agent was started again."""
        serving = {one.runtime for one in host.facts()}
        with self._news:
            if expected:
                self._placement.came()
            self._hosts[host.id] = host
            self._placement.joined(host.id, serving)
            self._news.notify_all()

    def not_hired(self) -> None:
        """A requested host will not come."""
        with self._news:
            self._placement.came()
            self._news.notify_all()

    def left(self, host: HostId) -> None:
        """A host does not answer: it is dismissed, and other hosts serve its runtimes from now on."""
        with self._news:
            gone = self._hosts.pop(host, None)
            orphans = self._placement.left(host)
            self._hire_one()
            self._news.notify_all()
        if gone is not None:
            gone.dismiss()  # one that only seemed to be dead would block its runtimes for ever
        # On a thread: the caller may have the turn of one of them.
        threading.Thread(target=self._adopt, args=(orphans,), name="cenote-orphans", daemon=True).start()

    def get_ready(self) -> None:
        """Requests a host for the next runtime, if none is free."""
        with self._news:
            self._hire_one()

    def await_quiet(self) -> bool:
        """Returns when a host may be started: at once where there is none. False when none is needed any more."""
        with self._news:
            seen, idle = self._clock(), self._idle()
            until = seen + LONGEST_UNREST
            while self._hosts and self._placement.most and (now := self._clock()) < until:
                if now >= seen + QUIET:
                    spare = self._idle() - idle >= TO_SPARE * (now - seen)
                    if spare and not self._binding and now >= self._bound + QUIET:
                        break
                    seen, idle = now, self._idle()
                self._news.wait(min(seen + QUIET, until) - now)
            return self._placement.most > 0

    def any_address(self) -> str:
        """The components' address of any host: each has all values of the node. Raises UnavailableError."""
        with self._news:
            self._wait_for_host()
            return next(iter(self._hosts.values())).doors.components

    def find_orphans(self) -> None:
        """After a start: serves the stored runtimes without a host."""
        kept = self.kept()
        with self._lock:
            orphans = {runtime for runtime in kept if self._placement.host_of(runtime) is None}
        self._adopt(orphans)

    def kept(self) -> set[str]:
        """All runtimes of this node, with a host or without."""
        return {
            key.split("/")[1]
            for key in self._descriptor_store.keys("runtime/")
            if key.endswith("/assignment")
        }

    def _adopt(self, orphans: Iterable[str]) -> None:
        for runtime in orphans:
            with suppress(CenoteError):  # the next client that locates it gets the reason
                self.locate(runtime)

    # -- runtimes --

    def create(self, assignment: Assignment) -> Endpoints:
        """Returns where it is served; a repeated call the same. Raises UnavailableError when no host comes,
        NoRoomError when there is no place for one more.
        """
        with self._turn(assignment.runtime):
            host = self._serving(assignment.runtime) or self._begun(assignment)
            self._told[assignment.runtime] = self._clock()
            return host.doors

    def _begun(self, assignment: Assignment) -> Host:
        with self._lock:
            self._placement.admit(assignment.runtime)
        try:
            return self._bind(assignment, begins=True)
        finally:
            with self._lock:
                self._placement.admitted(assignment.runtime)

    def fork(self, parent: str, branches: Sequence[Assignment], order: ForkOrder) -> ForkPoint:
        """Has the host of a runtime make others that begin with a state of it, and serve them: all or none.

        Raises UnknownRuntimeError, UnavailableError, and what its host raises.
        """
        self._end_all(branches)  # from an earlier call, whose caller was killed
        with self._turn(parent):
            host = self._host_of(parent)
        with self._lock:
            for branch in branches:
                self._placement.settle(branch.runtime, host.id)
        try:
            return host.fork(parent, branches, order)
        except HostGone as gone:
            self.left(host.id)
            self._end_all(branches)
            raise UnavailableError(
                "the process that made the branches has ended, and they with it; fork again"
            ) from gone
        except BaseException:
            for branch in branches:
                self._forget(branch.runtime)
            raise

    def _end_all(self, branches: Iterable[Assignment]) -> None:
        for branch in branches:
            with suppress(UnknownRuntimeError):  # it was not begun
                self.end(branch.runtime)

    def locate(self, runtime: str) -> Endpoints:
        """Where it is served now. Raises UnknownRuntimeError; UnavailableError while it has no host."""
        with self._turn(runtime):
            host = self._host_of(runtime)
            self._told[runtime] = self._clock()
            return host.doors

    def end(self, runtime: str) -> None:
        """Ends a runtime for good. Raises UnknownRuntimeError."""
        with self._turn(runtime):
            # First: a host that is killed has dropped some of it.
            kept = self._descriptor_store.get(KEY.format(runtime))
            while True:
                # The serving host comes first: a store that has just replaced another does not have it yet.
                host = self._serving(runtime) or self._bind(_read(kept, runtime), begins=True)
                try:
                    host.end(runtime)
                except HostGone:
                    self.left(host.id)
                else:
                    break
            self._forget(runtime)

    def release(self, runtime: str) -> None:
        """Leaves a durable runtime that sleeps to its store. Raises UnknownRuntimeError, what its host raises."""
        with self._turn(runtime), self._living(host := self._host_of(runtime), runtime):
            host.release(runtime)
            self._forget(runtime)

    def rest(self, runtime: str) -> None:
        """Puts a runtime to sleep. Raises as `release`. Calls that locate it meanwhile do not wait for that."""
        with self._turn(runtime):
            host = self._host_of(runtime)
        with self._living(host, runtime):
            host.rest(runtime)

    def _host_of(self, runtime: str) -> Host:
        """The host that serves it. The caller has the runtime's turn."""
        return self._serving(runtime) or self._bind(self._assignment(runtime), begins=False)

    @contextmanager
    def _living(self, host: Host, runtime: str) -> Iterator[None]:
        """Raises UnavailableError when its process ends inside."""
        try:
            yield
        except HostGone as gone:
            self.left(host.id)
            raise UnavailableError(f"the process that serves runtime {runtime!r} has ended") from gone

    def _end_idle(self, runtime: str, lease: float) -> None:
        """Ends a runtime that still has no client, while none can locate it."""
        with self._turn(runtime):
            host = self._serving(runtime)
            if self._clock() - self._told.get(runtime, -math.inf) < ARRIVAL:
                return
            if host is not None and host.end_idle(runtime, lease):
                self._forget(runtime)

    def _hibernate(self, runtime: str, seconds: float) -> None:
        """Puts a runtime to sleep that was not called for that long, once its state is stored. Raises nothing."""
        with suppress(CenoteError, HostGone):  # it is in use, or has something that would be lost
            host = self._serving(runtime)
            if host is None or not host.rest(runtime, seconds):
                return
            with self._turn(runtime):
                if self._serving(runtime) is host and host.end_asleep(runtime):
                    self._forget(runtime)

    def _forget(self, runtime: str) -> None:
        with self._lock:
            self._placement.remove(runtime)
            self._turns.pop(runtime, None)
            self._told.pop(runtime, None)

    def _serving(self, runtime: str) -> Host | None:
        with self._lock:
            host = self._placement.host_of(runtime)
            return self._hosts[host] if host is not None else None

    def _assignment(self, runtime: str) -> Assignment:
        return _read(self._descriptor_store.get(KEY.format(runtime)), runtime)

    def runtime(self, runtime: str) -> ServedRuntimeStatus:
        """Its status. Raises UnknownRuntimeError; UnavailableError while it has no host."""
        while True:
            with self._turn(runtime):
                host = self._host_of(runtime)
            try:
                return host.fact(runtime)
            except HostGone:
                self.left(host.id)

    def runtimes(self) -> list[ServedRuntimeStatus]:
        """The status of those that have a host."""
        found: list[ServedRuntimeStatus] = []
        with self._lock:
            hosts = list(self._hosts.values())
        for host in hosts:
            try:
                found += host.facts()
            except HostGone:
                self.left(host.id)
        return found

    def dissolve(self) -> None:
        """Ends all runtimes, and requests no more hosts; waits for requested ones, which come or will not come."""
        with self._news:
            self._placement.most = 0
            self._news.notify_all()
            self._news.wait_for(lambda: not self._placement.expects, HIRE_SECONDS)
        for one in self.runtimes():
            with suppress(CenoteError):  # its client has ended it just now
                self.end(one.runtime)

    def sweep(self) -> None:
        """Ends runtimes whose clients have been gone for too long, begins to put unused ones to sleep, and drops
        values that are neither held nor fetched.
        """
        due: dict[str, list[Hibernate]] = {}
        for one in self.runtimes():
            with suppress(CenoteError, HostGone):  # its client has ended it just now; or the next sweep will
                if one.lease and one.idle > one.lease:
                    self._end_idle(one.runtime, one.lease)
                elif one.retention.durable and self._drain.is_set:
                    due.setdefault(one.tenant, []).append(partial(self._move_out, one.runtime))
                elif one.quiet > one.retention.rests_after:
                    rest = partial(self._hibernate, one.runtime, one.retention.rests_after)
                    due.setdefault(one.tenant, []).append(rest)
        self._resting.begin(due)
        self._references.sweep()
        sweep_spares(self._descriptor_store, time.monotonic() - SPARE_SECONDS)

    def drain(self, wanted: bool) -> dict[str, bool]:
        """With true, durable runtimes leave this node from now on, each between two cells: their next call finds them
        elsewhere. Nothing is interrupted. With false, they stay again.

        Returns the runtimes that are here, with whether they are durable. Does not wait for any to leave. Raises
        UnavailableError where the node's folder cannot be written.
        """
        self._drain.set(wanted)
        if wanted:
            self.sweep()
        return self._kept_durable()

    def _kept_durable(self) -> dict[str, bool]:
        """All runtimes of this node, with whether they are durable."""
        kept = self._descriptor_store
        return {
            runtime: Assignment.of_record(entry.record).keeping.durable
            for runtime in self.kept()
            if (entry := kept.get(KEY.format(runtime))) is not None
        }

    def _move_out(self, runtime: str) -> None:
        """Leaves a durable runtime to its store between two cells, clients or not. Raises nothing."""
        until = self._clock() + GAP_SECONDS
        while self._drain.is_set and self._clock() < until:
            try:
                host = self._serving(runtime)
                if host is None:
                    return
                if host.rest(runtime):
                    self.release(runtime)
                    return
            except UnavailableError:  # a cell runs, or has just come: the next gap may be long enough
                pass
            except (CenoteError, HostGone):  # it has something that would be lost, or has ended
                return
            time.sleep(GAP_EVERY)

    def use(self) -> NodeUse:
        """What this node is used for now."""
        there, found, now = self._kept_durable(), self.runtimes(), self._clock()
        if there:
            self._used = now - min((one.quiet for one in found), default=0.0)
        return NodeUse(
            quiet=now - self._used,
            lasting=frozenset(runtime for runtime, durable in there.items() if not durable),
            durable=sum(there.values()),
            references=self._references.used()[0],
        )

    def leave(self) -> bool:
        """Takes no more runtimes from now on if it has none, and no shared values. Whether it can be dissolved."""
        with self._lock:
            return not (self._references.used()[0] or self.kept()) and self._placement.close()

    def facts(self) -> NodeStatus:
        (count, size), environments = self._references.used(), environments_here()
        with self._lock:
            return NodeStatus(
                node=self.id,
                hosts=self._placement.hosts,
                runtimes=self._placement.runtimes,
                references=count,
                reference_bytes=size,
                processors=processors(),
                draining=self._drain.is_set,
                places=self._placement.places,
                environments=environments,
            )

    # -- for the platform's record, and its quotas --

    def deeds(self, written: Mapping[str, int]) -> list[EventBatch]:
        """The events of each host. written: by source, up to where all is recorded."""
        found: list[EventBatch] = []
        with self._lock:
            hosts = list(self._hosts.values())
        for host in hosts:
            try:
                found.append(host.deeds(written))
            except HostGone:
                self.left(host.id)
        return found

    def limit(self, limits: Mapping[str, Limits]) -> None:
        """Sets what these tenants may use on this node, from now on."""
        self._quotas.limit(limits)

    # -- binding --

    def _turn(self, runtime: str) -> threading.Lock:
        with self._lock:
            return self._turns.setdefault(runtime, threading.Lock())

    def _bind(self, assignment: Assignment, *, begins: bool) -> Host:
        """begins: see RuntimeHost.bind. True also for one to be ended, so that all that is left of it is found."""
        with self._lock:
            self._binding += 1
        try:
            return self._bound_to(assignment, begins=begins)
        finally:
            with self._lock:
                self._binding -= 1
                self._bound = self._clock()

    def _bound_to(self, assignment: Assignment, *, begins: bool) -> Host:
        while True:
            host = self._chosen(assignment.runtime)
            try:
                host.bind(assignment, begins=begins)
            except HostGone:
                self.left(host.id)
            except BaseException:
                with self._lock:
                    self._placement.remove(assignment.runtime)
                raise
            else:
                return host

    def _chosen(self, runtime: str) -> Host:
        with self._news:
            self._wait_for_host()
            host = self._placement.place(runtime)
            assert host is not None
            self._hire_one()
            return self._hosts[host]

    def _wait_for_host(self) -> None:
        coming = self._placement.expects
        self._hire_one()
        self._news.wait_for(lambda: self._hosts or self._placement.hopeless, PATIENCE)
        if coming and self._placement.hopeless:  # that host was requested before this call
            self._hire_one()
            self._news.wait_for(lambda: self._hosts or self._placement.hopeless, PATIENCE)
        if not self._hosts:
            raise UnavailableError(f"node {self.id} has no process that serves runtimes; try again")

    def _hire_one(self) -> None:
        if self._placement.wants_more:
            self._placement.expect()
            try:
                self._hire()
            except RuntimeError:  # the machine has no room for one more thread now
                self._placement.came()


def _read(kept: StoredEntry | None, runtime: str) -> Assignment:
    if kept is None:
        raise UnknownRuntimeError(runtime)
    return Assignment.of_record(kept.record)
