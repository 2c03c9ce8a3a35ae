"""Branches of a tenant's runtimes, from the request to the running branches: all of one fork, or none.

As with other runtimes, rows are written first, so that everything a crash leaves can be found and ended.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from dataclasses import dataclass
from typing import Final

from cenote.gateway.api.runtime_registry import ID_PREFIX, MAX_KEY, RuntimeRegistry, subject_of
from cenote.gateway.audit.events import access_decided, runtime_created
from cenote.gateway.machines.nodes import Nodes, RuntimeOrder
from cenote.gateway.store.runtimes import Parent, RuntimeRecord
from cenote.gateway.store.stores import Stores
from cenote.gateway.values.bounds import check_lease
from cenote.gateway.values.principal import Principal
from cenote_proto.v1 import runtime_pb2
from cenote_security.auth.tokens import Scope
from cenote_security.errors import CenoteError, EntryExistsError, UnknownRuntimeError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.snapshots import check_target
from cenote_worker.runtime.state.branches import ForkOrder, check_count
from cenote_worker.wire import policies

log = logging.getLogger("cenote.gateway")

FORK_SECONDS: Final = 100.0
"""Seconds for a fork to be made: a jail may take its time on purpose. Shorter than the timeout for machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """A client's request for a fork. See ForkRuntimeRequest. order: without its patience."""

    name: str
    order: ForkOrder
    count: int = 1
    names: tuple[str, ...] = ()
    lease: float = 0.0
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedFork:
    """A fork that was admitted. fresh: it is to be made now. branches: exist all together, or not at all."""

    parent: RuntimeRecord
    branches: tuple[RuntimeRecord, ...]
    order: ForkOrder
    fresh: bool = True

    @property
    def id(self) -> str:
        """Distinguishes the fork from others of the tenant."""
        parent = self.branches[0].parent
        assert parent is not None, "it is a branch"
        return parent.fork


class Branches:
    """Calls block, from any thread. The caller is a Principal; its scopes are checked first."""

    def __init__(self, stores: Stores, nodes: Nodes, registry: RuntimeRegistry) -> None:
        self._stores = stores
        self._nodes = nodes
        self._registry = registry

    def admit(self, principal: Principal, wish: ForkRequest) -> AdmittedFork:
        """Admits a fork. One call at a time, including calls of RuntimeRegistry.admit.

        Raises ScopeMissingError, UnknownRuntimeError, EntryExistsError, QuotaExceededError, UsageError.
        """
        principal.require(Scope.RUNTIMES_WRITE)
        _check(wish)
        parent = self._registry.find(principal, wish.name)
        known = self._stores.runtimes.by_fork(principal.tenant, wish.key) if wish.key else []
        if known:
            return AdmittedFork(parent=parent, branches=tuple(known), order=wish.order, fresh=False)
        if not parent.made:
            raise UnknownRuntimeError(wish.name)
        names = wish.names or self._free_names(parent, wish.count)
        born = Parent(runtime=parent.id, name=parent.name, fork=wish.key or secrets.token_hex(16))
        admitted: list[RuntimeRecord] = []
        try:
            for place, name in enumerate(names):
                admitted.append(self._add(parent, name, born, place, wish.lease))
                self._registry.reserve(admitted[-1], _policy(parent))
        except BaseException:
            for record in admitted:
                self._registry.take_back(record)
            raise
        return AdmittedFork(parent=parent, branches=tuple(admitted), order=wish.order)

    def make(self, principal: Principal, fork: AdmittedFork) -> None:
        """Records the fork, and then makes it on the parent's node. After a failure, call `abandon`."""
        parent, recorder = fork.parent, self._stores.recorder
        recorder.record(access_decided(subject_of(principal, parent.id), "fork"))
        written = [
            recorder.record(
                runtime_created(
                    subject_of(principal, branch.id), branch.name, _policy(branch), parent=parent.id
                )
            )
            for branch in fork.branches
        ]
        for entry in written:
            entry.result()
        self._registry.limit(parent.tenant)
        self._registry.locate(parent)  # restores a parent that is only in the store
        point = self._nodes.fork(parent.id, list(map(self._newcomer, fork.branches)), fork.order)
        self._stores.runtimes.forked(parent.tenant, fork.id, point)

    def abandon(self, fork: AdmittedFork) -> None:
        """Takes back a fork that was admitted and not made: each branch, even if removing another one fails."""
        for branch in fork.branches:
            try:
                self._registry.abandon(branch)
            except CenoteError as error:
                log.warning(
                    "%s was not made, and is left behind: %s", branch.id, error, extra={"runtime": branch.id}
                )

    def _add(
        self, parent: RuntimeRecord, name: str | None, born: Parent, place: int, lease: float
    ) -> RuntimeRecord:
        """A record with the parent's settings."""
        return self._stores.runtimes.add(
            parent.tenant,
            name,
            policy=parent.policy,
            lease=lease,
            retention=parent.retention.of_branch(lease),
            parent=Parent(runtime=born.runtime, name=born.name, fork=born.fork, place=place),
        )

    def _newcomer(self, branch: RuntimeRecord) -> RuntimeOrder:
        return RuntimeOrder(
            runtime=branch.id,
            tenant=branch.tenant,
            policy=branch.policy,
            lease=branch.lease,
            keeping=self._stores.states.keeping(branch),
        )

    def _free_names(self, parent: RuntimeRecord, count: int) -> list[str] | list[None]:
        """Names `NAME-fork-1` and so on that are free; None where the parent's only name is its id."""
        if parent.name == parent.id:
            return [None] * count
        taken = {record.name for record in self._stores.runtimes.of(parent.tenant)}
        numbered = (f"{parent.name}-fork-{number}" for number in itertools.count(1))
        return list(itertools.islice((name for name in numbered if name not in taken), count))


def _policy(record: RuntimeRecord) -> SandboxPolicy:
    return policies.to_policy(runtime_pb2.Policy.FromString(record.policy))


def _check(wish: ForkRequest) -> None:
    check_count(wish.count)
    check_lease(wish.lease)
    if wish.order.at is not None:
        check_target(wish.order.at)
    if len(wish.key) > MAX_KEY:
        raise UsageError(f"a key has at most {MAX_KEY} characters")
    if wish.names and len(wish.names) != wish.count:
        raise UsageError(f"{wish.count} branches have as many names, not {len(wish.names)}")
    if any(name.startswith(ID_PREFIX) for name in wish.names):
        raise UsageError(f"names that begin with {ID_PREFIX!r} are given by the platform; choose others")
    if len(set(wish.names)) < len(wish.names):
        raise EntryExistsError("runtime", next(n for n in wish.names if wish.names.count(n) > 1))
