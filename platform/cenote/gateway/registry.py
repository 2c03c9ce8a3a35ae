"""A tenant's runtimes, from the wish for one to its end: names, quotas, nodes and the record, in the right order.

A row is there before anything else of a runtime and goes after everything else, so that whatever a crash leaves
behind can be found.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cenote.gateway.audit.events import Subject, access_decided, runtime_created, runtime_removed
from cenote.gateway.bounds import MAX_POLICY, PRELOADS, bounded, check_lease
from cenote.gateway.errors import AuditUnavailableError
from cenote.gateway.nodes import Nodes, RuntimeFacts
from cenote.gateway.principal import Principal
from cenote.gateway.quota import Hold, Quota, shared
from cenote.gateway.runtimes import RuntimeRecord
from cenote.gateway.stores import Stores
from cenote_security.errors import (
    CenoteError,
    EntryExistsError,
    RejectedError,
    UnavailableError,
    UnknownRuntimeError,
    UsageError,
)
from cenote_security.ids import RuntimeId
from cenote_security.policy import SandboxPolicy
from cenote_security.scopes import Scope
from cenote_worker.wire import policies

log = logging.getLogger("cenote.gateway")

ID_PREFIX: Final = "rt_"
MAX_KEY: Final = 200
MAX_PAGE: Final = 200
"""Runtimes of one page: each is asked of its node."""

_GONE: Final = "its machine or the platform was stopped, and its state was not kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a client wants to have made. See CreateRuntimeRequest."""

    name: str
    policy: SandboxPolicy
    attach: bool
    key: str
    lease: float


class Registry:
    """Calls block, from any thread. Whoever asks is a Principal; its scopes are checked first.

    preloads: what tenants may have preloaded.
    """

    def __init__(self, stores: Stores, nodes: Nodes, preloads: Sequence[str] = PRELOADS) -> None:
        self._stores = stores
        self._nodes = nodes
        self._preloads = tuple(preloads)

    def admit(self, principal: Principal, wish: Wish) -> tuple[RuntimeRecord, bool]:
        """The runtime that is meant, and whether it has to be made now, by `make`. One call at a time.

        Raises ScopeMissingError, EntryExistsError, QuotaExceededError, RejectedError, UsageError.
        """
        principal.require(Scope.RUNTIMES_WRITE)
        _check(wish)
        found = self._known(principal, wish)
        if found is not None:
            return found, False
        policy = bounded(wish.policy, self._preloads)
        record = self._stores.runtimes.add(
            principal.tenant, wish.name or None, policy=_message(policy), lease=wish.lease, key=wish.key
        )
        try:
            self._stores.quotas.reserve(_hold(record, policy))
        except BaseException:
            self._stores.runtimes.remove(record.tenant, record.id)
            raise
        return record, True

    def make(self, principal: Principal, record: RuntimeRecord, policy: SandboxPolicy) -> None:
        """Puts it on record, and then on a node. If that fails, `abandon` it."""
        subject = subject_of(principal, record.id)
        self._stores.recorder.record(runtime_created(subject, record.name, policy)).result()
        if limits := shared(self._stores.quotas.limits(record.tenant)):
            self._nodes.limit({record.tenant: limits})  # before anything of it can run
        self._nodes.create(record.id, record.tenant, record.policy, lease=record.lease)
        self._stores.runtimes.made(record.tenant, record.id)

    def abandon(self, record: RuntimeRecord) -> None:
        """Takes back what was admitted and not made."""
        subject = Subject(tenant=record.tenant, runtime=record.id)
        self._forget(subject, record, "it could not be made")

    def find(self, principal: Principal, text: str) -> RuntimeRecord:
        """By name or id. Raises UnknownRuntimeError, UsageError for what is neither."""
        if text.startswith(ID_PREFIX):
            return self._stores.runtimes.by_id(principal.tenant, RuntimeId(text))
        return self._stores.runtimes.find(principal, text)

    def facts(self, record: RuntimeRecord) -> RuntimeFacts:
        """How it is. Raises UnknownRuntimeError for one that has ended as agreed."""
        if not record.made:
            return RuntimeFacts(state="lost", reason="it is being made")
        try:
            return self._nodes.runtime(record.id)
        except UnknownRuntimeError:
            if not record.lease:
                return RuntimeFacts(state="lost", reason=_GONE)
            self._forget(Subject(tenant=record.tenant, runtime=record.id), record, "its lease ran out")
            raise UnknownRuntimeError(record.name) from None

    def page(
        self, principal: Principal, after: str, limit: int
    ) -> tuple[list[tuple[RuntimeRecord, RuntimeFacts]], str]:
        """Some of the tenant's runtimes, by name, and where the next page begins; empty at the end."""
        principal.require(Scope.RUNTIMES_READ)
        limit = min(limit or MAX_PAGE, MAX_PAGE)
        records = self._stores.runtimes.of(principal.tenant, after=after, limit=limit)
        listed = []
        for record in records:
            with suppress(UnknownRuntimeError):
                listed.append((record, self._listed(record)))
        return listed, records[-1].name if len(records) == limit else ""

    def delete(self, principal: Principal, record: RuntimeRecord) -> None:
        """Puts its end on record, and ends it."""
        principal.require(Scope.RUNTIMES_WRITE)
        subject = subject_of(principal, record.id)
        self._stores.recorder.record(access_decided(subject, "delete")).result()
        self._forget(subject, record, "deleted")

    def unmade(self) -> list[RuntimeRecord]:
        """At the start, before anything is made: what a former gateway began to make and nobody was told of."""
        return self._stores.runtimes.unmade()

    def sweep(self) -> None:
        """Puts on record what the operator did, has machines know new limits, and frees names and quotas of runtimes
        whose lease ran out.
        """
        self._stores.notices.hand_over(self._stores.recorder)
        quotas, tenants = self._stores.quotas, self._stores.tenants.all()
        self._nodes.limit({tenant.id: shared(quotas.limits(tenant.id)) for tenant in tenants})
        for record in self._stores.runtimes.leased():
            try:
                if self.facts(record).lost_for > record.lease:
                    subject = Subject(tenant=record.tenant, runtime=record.id)
                    self._forget(subject, record, "its machine has left the cluster")
            except UnknownRuntimeError:
                continue
            except CenoteError as error:
                log.warning("%s cannot be asked after: %s", record.id, error)

    def _known(self, principal: Principal, wish: Wish) -> RuntimeRecord | None:
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
        return found

    def _listed(self, record: RuntimeRecord) -> RuntimeFacts:
        """A list is whole when a node does not answer, too."""
        try:
            return self.facts(record)
        except UnavailableError as error:
            return RuntimeFacts(state="lost", reason=f"its machine does not answer: {error}")

    def _forget(self, subject: Subject, record: RuntimeRecord, reason: str) -> None:
        try:
            self._nodes.delete(record.id)
        except UnknownRuntimeError:
            pass  # it never came to be there, or has ended by itself
        except CenoteError as error:
            if record.made:
                raise
            log.warning("%s was not made, and cannot be ended: %s", record.id, error)
        with suppress(UnknownRuntimeError):  # two ends met
            self._stores.runtimes.remove(record.tenant, record.id)
        self._stores.quotas.release(record.id)
        try:
            self._stores.recorder.record(runtime_removed(subject, reason))
        except AuditUnavailableError as error:  # it has ended all the same
            log.error("the end of %s is not on record: %s", record.id, error)


def subject_of(principal: Principal, runtime: str = "") -> Subject:
    return Subject(tenant=principal.tenant, token=principal.token, runtime=runtime)


def _check(wish: Wish) -> None:
    if wish.name.startswith(ID_PREFIX):
        raise UsageError(f"names that begin with {ID_PREFIX!r} are given by the platform; choose another")
    if len(wish.key) > MAX_KEY:
        raise UsageError(f"a key has at most {MAX_KEY} characters")
    check_lease(wish.lease)


def _message(policy: SandboxPolicy) -> bytes:
    message = policies.to_message(policy).SerializeToString(deterministic=True)
    if len(message) > MAX_POLICY:
        raise RejectedError(f"a policy has up to {MAX_POLICY} bytes, with its environment; this one has more")
    return message


def _hold(record: RuntimeRecord, policy: SandboxPolicy) -> Hold:
    amounts = {
        Quota.RUNTIMES: 1,
        Quota.MEMORY: policy.memory_bytes,
        Quota.CPUS: round(policy.cpus * 1000),
    }
    return Hold(key=record.id, tenant=record.tenant, amounts=amounts, lasting=True)
