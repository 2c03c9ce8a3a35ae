"""Shared values in the descriptor store of a node: they outlive the processes that shared them or serve them.

A value is one entry with its sealed memory; each lease on it is an entry of its own, so that processes of the node
need not agree on anything to hold or release one. The node's agent sweeps values without a holder.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Final, Protocol

from cenote_security.errors import UnavailableError, UnknownReferenceError, UsageError
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.descriptor_store.client import DescriptorStoreClient, StoredEntry
from cenote_worker.descriptor_store.message import close_all
from cenote_worker.execution.results import VariableInfo
from cenote_worker.node.value_store import ReferenceLeases, ValueStore, value_size
from cenote_worker.serving.references import (
    HOLDERS_NAMED,
    MAX_HOLDERS,
    HeldReference,
    ReferenceOrigin,
    ReferenceRecord,
    check_count,
)
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.transport.content import Content

COPY: Final = "copy"
"""The holder of a value that was fetched from another node, for its next user here."""

COPY_SECONDS: Final = 60.0
"""Seconds for which an unused copy is stored."""


AT_ONCE: Final = 0.01
"""Seconds for which a process that serves all clients waits for the store: a hundred times what it takes."""


class ValueFetcher(Protocol):
    """Fetches values from other nodes."""

    def __call__(self, reference: str, tenant: str) -> None:
        """Calls `adopt` with a value that another node has. Raises UnknownReferenceError, UnavailableError."""


class NodeReferences:
    """A SharedValueStore over the descriptor store. room: see ValueStore.

    elsewhere: None for this node's values alone. quotas: each tenant's limits for them, in memory or on disk.
    """

    def __init__(
        self,
        descriptor_store: DescriptorStoreClient,
        node: str,
        room: int | None,
        elsewhere: ValueFetcher | None = None,
        clock: Callable[[], float] = time.monotonic,
        quotas: MachineQuotas | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """clock: of leases, one for all processes of the machine; a change of the machine's time neither ends nor
        prolongs them. wall: that time, for people.
        """
        self._values = ValueStore(descriptor_store, room)
        self._at_once = ValueStore(DescriptorStoreClient(descriptor_store.folder, answer=AT_ONCE), room)
        self._leases = ReferenceLeases(descriptor_store, clock)
        self._node = node
        self._elsewhere = elsewhere
        self._clock = clock
        self._wall = wall
        self._quotas = quotas

    def put(
        self, content: Content, info: VariableInfo, origin: ReferenceOrigin, *, holder: str, lease: float
    ) -> ReferenceRecord:
        try:
            # 128 bits that cannot be guessed; the node and the size, so that finding it takes no directory.
            reference = f"ref_{secrets.token_hex(16)}_{content.size:x}_{self._node}"
            record = _encoded(info, origin, content, self._wall())
            self._keep(reference, origin.tenant, record, content, holder, lease)
        finally:
            content.close()
        return self.describe(reference, origin.tenant)

    def describe(self, reference: str, tenant: str) -> ReferenceRecord:
        kept = self._found(reference, tenant, self._values.get)
        close_all(kept.descriptors)
        return self._decoded(reference, tenant, kept.record)

    def content(self, reference: str, tenant: str) -> Content:
        return _content(self._found(reference, tenant, self._values.use))

    def content_here(self, reference: str, tenant: str) -> Content | None:
        """Over a connection that does not wait for a store that is being replaced, or hangs."""
        if not self._is_own(reference):
            return None
        try:
            kept = self._at_once.use(_name(reference, tenant))
        except UnavailableError:
            return None
        return None if kept is None else _content(kept)

    def sealed(self, reference: str, tenant: str) -> tuple[bytes, Content]:
        """The record and the value, for another node. Raises UnknownReferenceError for a value that is not here."""
        kept = _known(reference, self._values.use(_name(reference, tenant)))
        return kept.record, _content(kept)

    def keeps(self, reference: str) -> bool:
        """Whether it is here, for any tenant."""
        return any(name.endswith(f"/{reference}") for name in self._values.names())

    def adopt(self, reference: str, tenant: str, record: bytes, content: Content) -> None:
        """Stores a value of another node here too, for a while. Takes the content over.

        Raises UnavailableError where neither memory nor disk has room for it, QuotaExceededError when its tenant is
        at its limit.
        """
        try:
            self._keep(reference, tenant, record, content, COPY, COPY_SECONDS)
        finally:
            content.close()

    def hold(self, reference: str, tenant: str, *, holder: str, lease: float) -> ReferenceRecord:
        found, name = self.describe(reference, tenant), _name(reference, tenant)
        if found.holders >= MAX_HOLDERS:
            raise UsageError(f"a reference has at most {MAX_HOLDERS} holders")
        self._leases.extend(name, holder, lease)
        try:
            return self.describe(reference, tenant)
        except UnknownReferenceError:  # it went meanwhile: then it is not held
            self._leases.drop(name, holder)
            raise

    def release(self, reference: str, tenant: str, *, holder: str) -> None:
        name = _name(reference, tenant)
        if self._is_own(reference) and not self._leases.has(name, holder):
            self.describe(reference, tenant)
        self._leases.drop(name, holder)
        self._drop_unheld(name)

    def held_by(self, holders: str) -> Iterator[HeldReference]:
        """The references of all holders whose names begin with this."""
        for name, holder in self._leases.of(holders):
            tenant, _, reference = name.partition("/")
            yield HeldReference(reference=reference, tenant=tenant, holder=holder)

    def list(self, tenant: str, *, after: str, limit: int) -> list[ReferenceRecord]:
        names = (name.removeprefix(f"{tenant}/") for name in self._values.names(tenant))
        records = []
        for name in [name for name in names if name > after][:limit]:
            try:
                records.append(self.describe(name, tenant))
            except UnknownReferenceError:
                continue
        return records

    def used(self) -> tuple[int, int]:
        """Number of values on this node, and their bytes, in memory or on disk."""
        sizes = list(map(value_size, self._values.names()))
        return len(sizes), sum(sizes)

    def stored(self, tenant: str) -> int:
        return sum(map(value_size, self._values.names(tenant)))

    def sweep(self) -> None:
        """Drops values without a holder. The node's agent calls it from time to time."""
        names = self._values.names()
        held = self._leases.sweep(set(names))
        for name in names:
            if name not in held:
                self._values.drop(name)

    # -- entries --

    def _found(self, reference: str, tenant: str, find: Callable[[str], StoredEntry | None]) -> StoredEntry:
        """The entry here, or fetched from another node: once, as long as it is in use here."""
        name, elsewhere = _name(reference, tenant), None if self._is_own(reference) else self._elsewhere
        kept = find(name)
        if kept is None and elsewhere is not None:
            elsewhere(reference, tenant)
            kept = find(name)
        known = _known(reference, kept)
        if elsewhere is not None:
            self._leases.extend(name, COPY, COPY_SECONDS)
        return known

    def _is_own(self, reference: str) -> bool:
        """A malformed reference counts as this node's."""
        return not reference.startswith("ref_") or _node_of(reference) == self._node

    def _keep(
        self, reference: str, tenant: str, record: bytes, content: Content, holder: str, lease: float
    ) -> None:
        """Puts the value after its first lease, so that no sweep comes between them."""
        name = _name(reference, tenant)
        with self._quota(tenant, content.size):
            check_count(len(self._values.names(tenant)))
            self._leases.extend(name, holder, lease)
            try:
                self._put(name, record, content)
            except BaseException:
                self._leases.drop(name, holder)
                raise

    def _put(self, name: str, record: bytes, content: Content) -> None:
        memory = content.memory or SealedMemory.create([content.inline or b""])
        try:
            self._values.put(name, record, memory)
        finally:
            if content.memory is None:
                memory.close()

    def _drop_unheld(self, name: str) -> None:
        if not any(self._leases.ends(name)):
            self._values.drop(name)

    def _quota(self, tenant: str, size: int) -> AbstractContextManager[None]:
        return nullcontext() if self._quotas is None else self._quotas.room(tenant, size, self.stored)

    def _decoded(self, reference: str, tenant: str, record: bytes) -> ReferenceRecord:
        facts = json.loads(record)
        leases = dict(self._leases.ends(_name(reference, tenant)))
        info = facts["info"]
        shape = info.pop("shape")
        return ReferenceRecord(
            id=reference,
            info=VariableInfo(**info, shape=tuple(shape) if shape is not None else None),
            size=facts["size"],
            parts=facts["parts"],
            holders=len(leases),
            created=facts["created"],
            expires=round(max(leases.values(), default=self._clock()) + self._wall() - self._clock(), 1),
            origin=ReferenceOrigin(**facts["origin"]),
            node=_node_of(reference),
            held_by=tuple(sorted(leases)[:HOLDERS_NAMED]),
        )


def _name(reference: str, tenant: str) -> str:
    return f"{tenant}/{reference}"


def _node_of(reference: str) -> str:
    """The node where it was shared."""
    return reference.rpartition("_")[2]


def _known(reference: str, kept: StoredEntry | None) -> StoredEntry:
    if kept is None:
        raise UnknownReferenceError(reference)
    return kept


def _encoded(info: VariableInfo, origin: ReferenceOrigin, content: Content, created: float) -> bytes:
    facts = {
        "info": asdict(info),
        "origin": asdict(origin),
        "size": content.size,
        "parts": content.count,
        "created": created,
    }
    return json.dumps(facts).encode()


def view_of(content: Content) -> memoryview:
    """All bytes of a stored value."""
    return content.memory.map() if content.memory is not None else memoryview(content.inline or b"")


def size_in(record: bytes) -> int:
    """Bytes of the record's value."""
    return int(json.loads(record)["size"])


def content_of(record: bytes, memory: SealedMemory) -> Content:
    """A value of another node, in memory of this one, which is taken over."""
    facts = json.loads(record)
    return Content(size=facts["size"], count=facts["parts"], memory=memory)


def _content(kept: StoredEntry) -> Content:
    return content_of(kept.record, SealedMemory(kept.descriptors[0], size_in(kept.record)))
