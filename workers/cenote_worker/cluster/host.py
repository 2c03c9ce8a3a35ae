"""A process of a node that serves runtimes: supervises their jails, speaks with their clients.

It holds nothing that its node's keeper does not hold too, so another host goes on where this one is killed.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from cenote_security.capability import RuntimeKey
from cenote_security.errors import NameExistsError, UnavailableError, UnknownRuntimeError
from cenote_security.policy import SandboxPolicy
from cenote_worker.cluster.assignment import KEY, Assignment
from cenote_worker.cluster.kept_references import Elsewhere, KeptReferences
from cenote_worker.hosted.adoption import adopt
from cenote_worker.hosted.kept_runtime import KeptRuntime
from cenote_worker.hosted.patching import Patcher
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.keeper.client import KeeperClient
from cenote_worker.keeper.watch import KeeperWatch
from cenote_worker.serving.capabilities import CapabilityRights
from cenote_worker.serving.relay import HostRelay
from cenote_worker.serving.server import RuntimeServer
from cenote_worker.supervisor.jail_ends import JailEnds
from cenote_worker.tenancy.books import Books
from cenote_worker.tenancy.deeds import Batch
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.tenancy.trail import Trail

END_PATIENCE: Final = 10.0
"""Seconds for a host that was killed to be gone, with its locks."""

_LOOK_EVERY: Final = 0.02

QUOTAS: Final = "quotas"
"""In a node's folder, where its processes count together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFacts:
    """clients: attached, or gone only a moment ago. idle: seconds since the last one was seen."""

    runtime: str
    tenant: str
    clients: int
    steps: int
    running: bool
    idle: float
    lease: float


def _nothing() -> None:
    pass


@dataclass(slots=True, kw_only=True)
class _Bound:
    assignment: Assignment
    hosted: HostedRuntime
    kept: KeptRuntime
    refill: Callable[[], None] = _nothing


class RuntimeHost:
    """Thread-safe. Ends with its process, which its runtimes outlive.

    folder: of the node's keeper. start_ends: starts jails, in the process that has the zygote. key: of what may be
    done with references by whoever has no runtime here. patcher: see RuntimeServer.
    """

    def __init__(
        self,
        *,
        node: str,
        folder: Path,
        listen: str,
        room: int,
        key: RuntimeKey,
        start_ends: Callable[[SandboxPolicy], JailEnds],
        elsewhere: Elsewhere,
        patcher: Patcher | None = None,
    ) -> None:
        self._keeper = KeeperClient(folder)
        self._start_ends = start_ends
        self._lock = threading.Lock()
        self._bound: dict[str, _Bound] = {}
        self._binding: set[str] = set()
        self._keys: dict[str, Sequence[RuntimeKey]] = {key.runtime: (key,)}
        self._trail = Trail(f"{node}/{secrets.token_hex(8)}")
        self._quotas = MachineQuotas(folder / QUOTAS)
        self.references = KeptReferences(self._keeper, node, room, elsewhere, quotas=self._quotas)
        self._server = RuntimeServer(CapabilityRights(self._keys), self.references, listen, patcher=patcher)
        self._watch = KeeperWatch(folder)
        self.address = self._server.start()

    def bind(self, assignment: Assignment) -> None:
        """Serves a runtime from now on: a fresh one, or what another host has left of it.

        Raises NameExistsError when it is served here already, UnavailableError when another host still has it.
        """
        name, relay = assignment.runtime, HostRelay()
        with self._lock:
            if name in self._bound or name in self._binding:
                raise NameExistsError(name)
            self._binding.add(name)
        try:
            hosted, kept = self._taken_up(assignment, relay)
            self._keeper.put(KEY.format(name), assignment.record())
            bound = _Bound(assignment=assignment, hosted=hosted, kept=kept)
            bound.refill = partial(self._refill, bound)
            with self._lock:
                self._keys[name] = assignment.keys
                self._bound[name] = bound
        finally:
            with self._lock:
                self._binding.discard(name)
        self._watch.add(bound.refill)
        self._server.add(name, hosted, relay, self._books(assignment))

    def _books(self, assignment: Assignment) -> Books:
        return Books(
            assignment.tenant,
            assignment.runtime,
            assignment.sandbox(),
            self._trail,
            self._quotas,
            self.references.stored,
        )

    def _taken_up(self, assignment: Assignment, relay: HostRelay) -> tuple[HostedRuntime, KeptRuntime]:
        name, policy = assignment.runtime, assignment.sandbox()
        try:
            kept = self._found(name, policy)
            return adopt(name, policy, relay, kept), kept
        except UnknownRuntimeError:
            kept = KeptRuntime.fresh(name, policy, self._keeper, self._start_ends)
            return HostedRuntime(policy, relay, kept.start_jail, name, kept), kept

    def _found(self, name: str, policy: SandboxPolicy) -> KeptRuntime:
        """Waits for the end of its former process, which may have been told to end a moment ago."""
        until = time.monotonic() + END_PATIENCE
        while True:
            try:
                return KeptRuntime.found(name, policy, self._keeper, self._start_ends)
            except UnavailableError:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_EVERY)

    def end(self, runtime: str) -> None:
        """Ends a runtime for good. Raises UnknownRuntimeError."""
        with self._lock:
            bound = self._bound.pop(runtime, None)
            self._keys.pop(runtime, None)
        if bound is None:
            raise UnknownRuntimeError(runtime)
        self._watch.remove(bound.refill)
        self._server.remove(runtime)
        bound.hosted.close()
        self._keeper.drop(KEY.format(runtime))

    def end_idle(self, runtime: str, seconds: float) -> bool:
        """Ends it if it has had no client for so long. Whether it did. Raises UnknownRuntimeError."""
        idle = self._server.remove_idle(runtime, seconds)
        if idle:
            self.end(runtime)
        return idle

    def fact(self, runtime: str) -> RuntimeFacts:
        """Raises UnknownRuntimeError."""
        with self._lock:
            bound = self._bound.get(runtime)
        if bound is None:
            raise UnknownRuntimeError(runtime)
        return self._fact(bound)

    def facts(self) -> list[RuntimeFacts]:
        """Of all runtimes that are served here."""
        with self._lock:
            bound = list(self._bound.values())
        return [self._fact(one) for one in bound]

    def deeds(self, written: Mapping[str, int]) -> Batch:
        """What was done here, for the record. written: by source, up to where all is on record."""
        return self._trail.read(written.get(self._trail.source, 0))

    def _fact(self, bound: _Bound) -> RuntimeFacts:
        name = bound.assignment.runtime
        return RuntimeFacts(
            runtime=name,
            tenant=bound.assignment.tenant,
            clients=self._server.attached(name),
            steps=bound.hosted.step,
            running=bound.hosted.running,
            idle=self._server.idle(name),
            lease=bound.assignment.lease,
        )

    def _refill(self, bound: _Bound) -> None:
        """The keeper is a new one, and empty."""
        bound.kept.refill()
        self._keeper.put(KEY.format(bound.assignment.runtime), bound.assignment.record())
