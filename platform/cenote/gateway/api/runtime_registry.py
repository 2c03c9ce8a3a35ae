"""A tenant's runtimes from creation to deletion: names, quotas, nodes, audit entries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from cenote.gateway.audit.events import Subject, access_decided, runtime_created, runtime_removed
from cenote.gateway.errors import AuditUnavailableError, NodeLeftError
from cenote.gateway.machines.nodes import MachineStatus, Nodes, RuntimeLocation, RuntimeStatus
from cenote.gateway.store.runtimes import RuntimeRecord
from cenote.gateway.store.stores import Stores
from cenote.gateway.values.bounds import MAX_POLICY, TenantBounds, check_lease
from cenote.gateway.values.principal import Principal
from cenote.gateway.values.quota import Hold, Quota, shared
from cenote_proto.v1 import runtime_pb2
from cenote_security.auth.tokens import Scope
from cenote_security.errors import (
    CenoteError,
    EntryExistsError,
    QuotaExceededError,
    RejectedError,
    UnavailableError,
    UnknownRuntimeError,
    UsageError,
)
from cenote_security.ids import RuntimeId, TenantId
from cenote_security.policy import SandboxPolicy
from cenote_security.problems import Problems
from cenote_worker.checkpoints.errors import CheckpointError
from cenote_worker.checkpoints.retention import NOTHING_STORED, Retention
from cenote_worker.wire import policies


class Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


def page(entries: Callable[[int], Sequence[Entry]], limit: int, most: int) -> tuple[Sequence[Entry], str]:
    """Returns one page of entries, and the name after which the next page begins (empty at the end).

    entries: returns up to the given number of entries. limit: the page size wanted; 0 means `most`.
    """
    limit = min(limit or most, most)
    found = entries(limit)
    return found, found[-1].name if len(found) == limit else ""


log = logging.getLogger("cenote.gateway")

ID_PREFIX: Final = "rt_"
COUNTED_FOR: Final = 10.0
"""Seconds for which the processor count of all machines is cached."""

MAX_KEY: Final = 200
MAX_PAGE: Final = 200
"""Runtimes of one page: the status of each is a call to its node."""

LOST_AT_ONCE: Final = 50
"""Runtimes without a lease that each `sweep` checks."""

_GONE: Final = (
    "its machine or the platform was stopped, or all processes that held it were killed together, "
    "and its state was not kept"
)

_BEING_MADE: Final = "it is being made"
_UNENDED: Final = "it could not be made, and is taken back as soon as its machine answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRequest:
    """A client's request for a runtime. See CreateRuntimeRequest."""

    name: str
    policy: SandboxPolicy
    attach: bool
    key: str
    lease: float
    retention: Retention = NOTHING_STORED


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRuntime:
    """A runtime that a drained machine still has. name: empty for one of another tenant."""

    id: RuntimeId
    name: str
    durable: bool


class RuntimeRegistry:
    """Calls block, from any thread. The caller is a Principal; its scopes are checked first.

    bounds: what tenants may ask for.
    """

    def __init__(self, stores: Stores, nodes: Nodes, bounds: TenantBounds | None = None) -> None:
        self._stores = stores
        self._nodes = nodes
        self._bounds = bounds or TenantBounds()
        self._lock = threading.Lock()
        self._turns: dict[RuntimeId, threading.Lock] = {}
        self._looked_at = ""
        self._processors = 0
        self._counted_until = 0.0
        self._remains: dict[RuntimeId, RuntimeRecord] = {}
        """Runtimes that could not be made and not yet be taken back, while a node does not answer."""

    def processors(self) -> int:
        """Processors of all machines that answer, cached for COUNTED_FOR seconds."""
        with self._lock:
            fresh = time.monotonic() < self._counted_until
        if not fresh:
            found = sum(node.processors for node in self._nodes.describe())
            with self._lock:
                self._processors, self._counted_until = found, time.monotonic() + COUNTED_FOR
        return self._processors

    def check(self, principal: Principal, wish: RuntimeRequest, wrong: Problems) -> None:
        """Collects all problems of a request. wrong: problems that are already known."""
        with wrong.noting():
            _check(wish)
        with wrong.noting():
            self._stores.states.check(wish.retention)
        if wrong:  # else the runtime may exist already, whatever the other fields of the request
            with wrong.noting():
                self._bounds.apply(wish.policy, principal.tenant)

    def admit(self, principal: Principal, wish: RuntimeRequest) -> tuple[RuntimeRecord, bool]:
        """Returns the runtime of this request, and whether `make` has to make it now. One call at a time.

        A read-only token can attach to an existing runtime; the credentials that it gets allow no more than reading.
        Raises ScopeMissingError, EntryExistsError, QuotaExceededError, RejectedError, UsageError.
        """
        if not (wish.name and wish.attach and Scope.RUNTIMES_READ in principal.scopes):
            principal.require(Scope.RUNTIMES_WRITE)
        _check(wish)
        self._stores.states.check(wish.retention)
        found = self._known(principal, wish)
        if found is not None:
            if found.id in self._remains:
                raise UnavailableError(f"{found.name!r} could not be taken back yet; try again in a moment")
            return found, False
        principal.require(Scope.RUNTIMES_WRITE)
        policy = self._bounds.apply(wish.policy, principal.tenant)
        record = self._stores.runtimes.add(
            principal.tenant,
            wish.name or None,
            policy=_message(policy),
            lease=wish.lease,
            key=wish.key,
            retention=wish.retention,
        )
        try:
            self.reserve(record, policy)
        except BaseException:
            self.take_back(record)
            raise
        return record, True

    def reserve(self, record: RuntimeRecord, policy: SandboxPolicy) -> None:
        """Reserves the runtime's part of the quotas; first releases what lost runtimes of the tenant still hold.

        Raises QuotaExceededError.
        """
        hold = hold_of(record, policy)
        try:
            self._stores.reserve(hold)
        except QuotaExceededError:
            kept = self._stores.quotas.used(record.tenant)
            for other in self._stores.runtimes.of(record.tenant):
                if other.made and self._stores.quotas.holds(other.id):
                    with suppress(CenoteError):
                        self.facts(other)
            if self._stores.quotas.used(record.tenant) == kept:
                raise
            self._stores.reserve(hold)

    def take_back(self, record: RuntimeRecord) -> None:
        """Undoes an admission whose making has not begun. If that fails, each `sweep` tries again."""
        try:
            self._stores.quotas.release(record.id)
            with suppress(UnknownRuntimeError):
                self._stores.runtimes.remove(record.tenant, record.id)
        except CenoteError as error:
            log.warning(
                "%s is not made, and cannot be taken back yet: %s",
                record.id,
                error,
                extra={"runtime": record.id},
            )
            self._remains[record.id] = record

    def announce(self, principal: Principal, record: RuntimeRecord, policy: SandboxPolicy) -> None:
        """Puts a runtime on record that is about to be made."""
        subject = subject_of(principal, record.id)
        self._stores.recorder.record(runtime_created(subject, record.name, policy)).result()

    def make(self, record: RuntimeRecord) -> RuntimeLocation:
        """Makes a recorded runtime on a node. After a failure, call `abandon`. Raises NoRoomError: then it may be
        called again.
        """
        place = self._create(record)
        self._stores.runtimes.made(record.tenant, record.id)
        return place

    def _create(self, record: RuntimeRecord, *, partial: bool = False, node: str = "") -> RuntimeLocation:
        self.limit(record.tenant)
        keeping = self._stores.states.keeping(record, partial=partial)
        return self._nodes.create(
            record.id, record.tenant, record.policy, lease=record.lease, keeping=keeping, node=node
        )

    def limit(self, tenant: TenantId) -> None:
        """Sends the tenant's limits to the machines, before anything more of the tenant can run."""
        if limits := shared(self._stores.quotas.limits(tenant)):
            self._nodes.limit({tenant: limits})

    def abandon(self, record: RuntimeRecord) -> None:
        """Takes back a runtime that was admitted and not made. Where that fails, each `sweep` tries again."""
        subject = Subject(tenant=record.tenant, runtime=record.id)
        try:
            self._forget(subject, record, "it could not be made")
        except Exception as error:  # noqa: BLE001  (of any kind: no other code would end it)
            log.warning(
                "%s was not made, and cannot be ended yet: %r", record.id, error, extra={"runtime": record.id}
            )
            self._remains[record.id] = record
            self._stores.runtimes.disown(record.tenant, record.id)
        else:
            self._remains.pop(record.id, None)

    def find(self, principal: Principal, text: str) -> RuntimeRecord:
        """Looks up by name or id. Raises UnknownRuntimeError, and UsageError for text that is neither."""
        if text.startswith(ID_PREFIX):
            return self._stores.runtimes.by_id(principal.tenant, RuntimeId(text))
        return self._stores.runtimes.find(principal, text)

    def locate(
        self, record: RuntimeRecord, *, partial: bool = False, wake: bool = True
    ) -> RuntimeLocation | None:
        """Returns where the runtime is served. A durable runtime that is only in the store is restored and served
        again; with `wake` false, it has no location.

        partial: restore without the values that cannot be restored. Raises UnknownRuntimeError, CheckpointError.
        """
        if not record.durable:
            return self._nodes.locate(record.id)
        with self._turn(record.id):
            try:
                return self._nodes.locate(record.id)
            except (UnknownRuntimeError, NodeLeftError):
                return self._create(record, partial=partial) if wake else None

    def move(self, principal: Principal, record: RuntimeRecord, node: str) -> RuntimeLocation:
        """Moves a durable runtime to another machine. node: its id; empty for the machine with most room.

        Raises UsageError, UnavailableError while a cell runs, IncompleteRestoreError when a value would be missing:
        then the runtime stays where it is.
        """
        principal.require(Scope.RUNTIMES_WRITE)
        if not record.durable:
            raise UsageError(
                f"{record.name!r} is not durable: its state is in the memory of its machine alone, and would be "
                f"missing on another"
            )
        here = self.locate(record, wake=False)
        target = _target(
            node, here.node if here else "", self._nodes.describe(), str(_policy(record).environment or "")
        )
        self._stores.recorder.record(access_decided(subject_of(principal, record.id), "move")).result()
        if here:
            # Outside the lock: this is slow, and `locate` must not wait for it.
            with suppress(UnknownRuntimeError):
                self._nodes.rest(record.id)
        with self._turn(record.id):
            if here:
                with suppress(UnknownRuntimeError):  # it has hibernated just now
                    self._nodes.release(record.id)
            return self._create(record, node=target)

    def drain(self, principal: Principal, node: str, *, wanted: bool) -> list[NodeRuntime]:
        """Drains a machine, or ends that. Returns what is still there, of all tenants. Raises as Nodes.drain does."""
        for scope in (Scope.MACHINES, Scope.ADMIN):
            principal.require(scope)
        former = {each.id: each.draining for each in self._nodes.describe()}
        if node not in former:
            raise UsageError(f"there is no machine {node!r}; this platform has {', '.join(former)}")
        if former[node] != wanted:
            action = f"{'drain' if wanted else 'resume'} {node}"
            self._stores.recorder.record(access_decided(subject_of(principal), action)).result()
        found = self._nodes.drain(node, wanted)
        return [self._on_node(principal, runtime, found[runtime]) for runtime in sorted(found)]

    def _on_node(self, principal: Principal, runtime: RuntimeId, durable: bool) -> NodeRuntime:
        """With its name, for the tenant that it belongs to."""
        try:
            name = self._stores.runtimes.by_id(principal.tenant, runtime).name
        except UnknownRuntimeError:
            name = ""
        return NodeRuntime(id=runtime, name=name, durable=durable)

    def _turn(self, runtime: RuntimeId) -> threading.Lock:
        """Serialises restoring and ending one runtime."""
        with self._lock:
            return self._turns.setdefault(runtime, threading.Lock())

    def facts(self, record: RuntimeRecord) -> RuntimeStatus:
        """Returns the status. Raises UnknownRuntimeError for one that has ended normally."""
        if not record.made:
            return RuntimeStatus(state="lost", reason=_UNENDED if record.id in self._remains else _BEING_MADE)
        try:
            facts = self._nodes.runtime(record.id)
            if facts.state != "lost" and not self._stores.quotas.holds(record.id):
                self._stores.quotas.hold_again(hold_of(record, _policy(record)))
            return self._asleep(record) if record.durable and facts.state == "lost" else facts
        except (UnknownRuntimeError, NodeLeftError) as error:
            if record.durable:
                return self._asleep(record)
            if isinstance(error, NodeLeftError):
                raise
            if not record.lease:
                self._stores.quotas.release(record.id)  # it uses nothing but its name
                return RuntimeStatus(state="lost", reason=_GONE)
            self._forget(Subject(tenant=record.tenant, runtime=record.id), record, "its lease ran out")
            raise UnknownRuntimeError(record.name) from None

    def _asleep(self, record: RuntimeRecord) -> RuntimeStatus:
        """Returns the status of a durable runtime that no machine has: the next call restores it."""
        return RuntimeStatus(state="hibernated", steps=self._stores.states.step(record))

    def page(
        self, principal: Principal, after: str, limit: int
    ) -> tuple[list[tuple[RuntimeRecord, RuntimeStatus]], str]:
        """One page of the tenant's runtimes by name, and where the next page begins (empty at the end)."""
        principal.require(Scope.RUNTIMES_READ)
        entries = self._stores.runtimes
        records, following = page(
            lambda most: entries.of(principal.tenant, after=after, limit=most), limit, MAX_PAGE
        )
        listed = []
        for record in records:
            with suppress(UnknownRuntimeError):
                listed.append((record, self._listed(record)))
        return listed, following

    def delete(self, principal: Principal, record: RuntimeRecord) -> None:
        """Records the end of the runtime, then ends it."""
        principal.require(Scope.RUNTIMES_WRITE)
        subject = subject_of(principal, record.id)
        self._stores.recorder.record(access_decided(subject, "delete")).result()
        self._forget(subject, record, "deleted")

    def delete_all_of(self, tenant: TenantId, names: str, reason: str) -> None:
        """Ends the tenant's runtimes whose names begin so. One that cannot be ended now ends with its lease."""
        for record in self._stores.runtimes.of(tenant, after=names):
            if not record.name.startswith(names):
                return
            try:
                self._forget(Subject(tenant=tenant, runtime=record.id), record, reason)
            except CenoteError as error:
                log.warning("%s is left to its lease: %s", record.id, error, extra={"runtime": record.id})

    def unmade(self) -> list[RuntimeRecord]:
        """At the start, before any `make`: runtimes that a former gateway began to make and no client knows of."""
        return self._stores.runtimes.unmade()

    def sweep(self) -> None:
        """Records the operator's changes, sends new limits to the machines, and retries the removal of runtimes that
        could not be made or were deleted while their machine was away. Frees names and quotas of runtimes whose lease
        has run out, and quotas of what is gone.
        """
        self._stores.notices.hand_over(self._stores.recorder)
        quotas, tenants = self._stores.quotas, self._stores.tenants.all()
        self._nodes.limit({tenant.id: shared(quotas.limits(tenant.id)) for tenant in tenants})
        for record in list(self._remains.values()):
            self.abandon(record)
        self._stores.release_holds()
        try:
            self._nodes.clear(self._stores.runtimes.ids)
        except CenoteError as error:
            log.warning("a machine that was away cannot be cleared yet: %s", error)
        self._look_for_lost()
        for record in self._stores.runtimes.leased():
            try:
                if self.facts(record).lost_for > record.lease:
                    subject = Subject(tenant=record.tenant, runtime=record.id)
                    self._forget(subject, record, "its machine has left the cluster")
            except UnknownRuntimeError:
                continue
            except CenoteError as error:
                log.warning("%s cannot be asked after: %s", record.id, error, extra={"runtime": record.id})

    def _look_for_lost(self) -> None:
        """Releases the quotas of lost runtimes; LOST_AT_ONCE per call, since each check is a call to a machine."""
        some = self._stores.runtimes.lasting(self._looked_at, LOST_AT_ONCE)
        self._looked_at = some[-1].id if len(some) == LOST_AT_ONCE else ""
        for record in some:
            if self._stores.quotas.holds(record.id):
                with suppress(CenoteError):  # a machine that does not answer may still have it
                    self.facts(record)

    def _known(self, principal: Principal, wish: RuntimeRequest) -> RuntimeRecord | None:
        runtimes = self._stores.runtimes
        if wish.key and (found := runtimes.by_request(principal.tenant, wish.key)) is not None:
            return found
        if not wish.name:
            return None
        try:
            found = runtimes.by_name(principal.tenant, wish.name)
        except UnknownRuntimeError:
            return None
        if not wish.attach:
            raise EntryExistsError("runtime", wish.name)
        if wish.retention.durable and not found.durable:
            raise UsageError(f"the runtime {wish.name!r} is there and not durable; make another one")
        self._check_environment(found, wish)
        return found

    def _check_environment(self, found: RuntimeRecord, wish: RuntimeRequest) -> None:
        """Checks that an existing runtime has the environment that the request names. Raises RejectedError."""
        wanted = self._bounds.digest_of(wish.policy.environment, found.tenant)
        if wanted is not None and wanted != (has := _policy(found).environment):
            raise RejectedError(
                f"the runtime {wish.name!r} is there with {f'environment {has}' if has else 'no environment'}, where "
                f"{wish.policy.environment!r} is asked for, which is {wanted}; join it without sandbox=, or take "
                f"another name"
            )

    def _listed(self, record: RuntimeRecord) -> RuntimeStatus:
        """Returns a status also when the node does not answer, so that the list is complete."""
        try:
            return self.facts(record)
        except UnavailableError as error:
            return RuntimeStatus(state="lost", reason=f"its machine does not answer: {error}")
        except CheckpointError as error:
            return RuntimeStatus(state="lost", reason=f"what is stored of it cannot be read: {error}")

    def _forget(self, subject: Subject, record: RuntimeRecord, reason: str) -> None:
        with self._turn(record.id):
            self._end(record)
        with suppress(UnknownRuntimeError):  # another caller has ended it too
            self._stores.runtimes.remove(record.tenant, record.id)
        try:
            self._stores.recorder.record(runtime_removed(subject, reason))
        except AuditUnavailableError as error:  # it has ended nevertheless
            log.error("the end of %s is not on record: %s", record.id, error, extra={"runtime": record.id})
        self._stores.quotas.release(record.id)  # last: if that fails, the next sweep does it

    def _end(self, record: RuntimeRecord) -> None:
        # It never existed, ended by itself, or was lost with its machine: `clear` ends it if the machine returns.
        with suppress(UnknownRuntimeError, NodeLeftError):
            self._nodes.delete(record.id)
        self._stores.states.remove(record)
        with self._lock:
            self._turns.pop(record.id, None)


def subject_of(principal: Principal, runtime: str = "") -> Subject:
    return Subject(tenant=principal.tenant, token=principal.token, runtime=runtime)


def _target(node: str, here: str, nodes: Sequence[MachineStatus], environment: str) -> str:
    """Resolves the target machine. environment: by digest, of the runtime. Raises UsageError."""
    fit = [each for each in nodes if not environment or environment in each.environments]
    others = [each.id for each in fit if each.id != here and not each.draining]
    if node and node not in (names := [each.id for each in nodes]):
        raise UsageError(f"there is no machine {node!r}; this platform has {', '.join(names)}")
    if any(each.id == node != here and each.draining for each in nodes):
        raise UsageError(f"{node} is drained and takes no runtimes; `cenote node resume {node}` ends that")
    if node and node not in [each.id for each in fit]:
        raise UsageError(
            f"{node} has no environment {environment[:12]} yet; those of tenants are built there in the background"
        )
    if node == here or not others:
        raise UsageError(
            f"it is on {here or node} already" + ("" if others else ", the only machine that takes runtimes")
        )
    return node or others[0]


def _check(wish: RuntimeRequest) -> None:
    """Raises UsageError with all problems."""
    wrong = Problems()
    if wish.name.startswith(ID_PREFIX):
        wrong.note(
            UsageError(f"names that begin with {ID_PREFIX!r} are given by the platform; choose another")
        )
    if len(wish.key) > MAX_KEY:
        wrong.note(UsageError(f"a key has at most {MAX_KEY} characters"))
    with wrong.noting():
        check_lease(wish.lease)
    if wish.retention.durable and (wish.lease or not wish.name):
        wrong.note(
            UsageError(
                "a durable runtime has a name, and stays until it is removed: give a name, and no lease"
            )
        )
    wrong.raise_all()


def _message(policy: SandboxPolicy) -> bytes:
    message = policies.from_policy(policy).SerializeToString(deterministic=True)
    if len(message) > MAX_POLICY:
        raise RejectedError(f"a policy has up to {MAX_POLICY} bytes, with its environment; this one has more")
    return message


def _policy(record: RuntimeRecord) -> SandboxPolicy:
    return policies.to_policy(runtime_pb2.Policy.FromString(record.policy))


def hold_of(record: RuntimeRecord, policy: SandboxPolicy) -> Hold:
    amounts = {
        Quota.RUNTIMES: 1,
        Quota.MEMORY: policy.memory_bytes,
        Quota.CPUS: policy.millicpus,
    }
    return Hold(key=record.id, tenant=record.tenant, amounts=amounts, lasting=True)
