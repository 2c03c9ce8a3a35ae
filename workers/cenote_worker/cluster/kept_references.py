"""Shared values in the keeper of a node: they outlive whoever shared them, and whoever serves them.

A value is one entry with its sealed memory; each lease on it is an entry of its own, so that processes of the node
need not agree on anything to hold or release one. The node's agent sweeps away what nobody holds.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Protocol

from cenote_security.errors import CenoteError, UnknownReferenceError, UsageError
from cenote_security.sealed import SealedMemory
from cenote_worker.cluster.kept_leases import KeptLeases
from cenote_worker.cluster.kept_values import KeptValues, size_of
from cenote_worker.content import Content
from cenote_worker.keeper.client import KeeperClient, Kept
from cenote_worker.keeper.message import close_all
from cenote_worker.results import VariableInfo
from cenote_worker.serving.references import MAX_HOLDERS, Held, Origin, ReferenceRecord
from cenote_worker.tenancy.machine_quotas import MachineQuotas


class Elsewhere(Protocol):
    """Brings values from other nodes."""

    def __call__(self, node: str, reference: str, tenant: str) -> tuple[bytes, Content]:
        """The record of a value that another node keeps, and its bytes, here. Raises UnknownReferenceError."""


class KeptReferences:
    """A ReferenceStore over the keeper. room: see KeptValues.

    quotas: what each tenant may have of them, in memory or on disk.
    """

    def __init__(
        self,
        keeper: KeeperClient,
        node: str,
        room: int | None,
        elsewhere: Elsewhere,
        clock: Callable[[], float] = time.time,
        quotas: MachineQuotas | None = None,
    ) -> None:
        self._values = KeptValues(keeper, room)
        self._leases = KeptLeases(keeper, clock)
        self._node = node
        self._elsewhere = elsewhere
        self._clock = clock
        self._quotas = quotas

    def put(
        self, content: Content, info: VariableInfo, origin: Origin, *, holder: str, lease: float
    ) -> ReferenceRecord:
        try:
            # 128 bits that nobody meets by trying; the node and the size, so that finding it takes no directory.
            reference = f"ref_{secrets.token_hex(16)}_{content.size:x}_{self._node}"
            record, name = _encoded(info, origin, content, self._clock()), _name(reference, origin.tenant)
            with self._quota(origin.tenant, content.size):
                self._leases.extend(name, holder, lease)
                try:
                    self._keep(name, record, content)
                except BaseException:
                    self._leases.drop(name, holder)
                    raise
        finally:
            content.close()
        return self.describe(reference, origin.tenant)

    def describe(self, reference: str, tenant: str) -> ReferenceRecord:
        kept = self._find(reference, tenant)
        if kept is None:
            record, content = self._fetch(reference, tenant)
            content.close()
        else:
            close_all(kept.descriptors)
            record = kept.record
        return self._decoded(reference, tenant, record)

    def content(self, reference: str, tenant: str) -> Content:
        return self.sealed(reference, tenant)[1]

    def sealed(self, reference: str, tenant: str) -> tuple[bytes, Content]:
        """The record and the value, for another node."""
        kept = self._values.use(_name(reference, tenant))
        if kept is None:
            return self._fetch(reference, tenant)
        return kept.record, _content(kept.record, kept.descriptors[0])

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
        if not self._leases.has(name, holder):
            self.describe(reference, tenant)
        self._leases.drop(name, holder)
        self._drop_unheld(name)

    def held_by(self, holders: str) -> Iterator[Held]:
        """Whatever is held by holders whose names begin so."""
        for name, holder in self._leases.of(holders):
            tenant, _, reference = name.partition("/")
            yield Held(reference=reference, tenant=tenant, holder=holder)

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
        """How many values the node keeps, and their bytes, in memory or on disk."""
        sizes = list(map(size_of, self._values.names()))
        return len(sizes), sum(sizes)

    def stored(self, tenant: str) -> int:
        return sum(map(size_of, self._values.names(tenant)))

    def sweep(self) -> None:
        """Lets go of what nobody holds any more. For the node's agent, from time to time."""
        names = self._values.names()
        held = self._leases.sweep(set(names))
        for name in names:
            if name not in held:
                self._values.drop(name)

    # -- entries --

    def _find(self, reference: str, tenant: str) -> Kept | None:
        return self._values.get(_name(reference, tenant))

    def _fetch(self, reference: str, tenant: str) -> tuple[bytes, Content]:
        """From another node, once: after that this node has it too, for as long as it has a lease here.

        Raises UnknownReferenceError for one that would be here.
        """
        node = reference.rpartition("_")[2]
        if node == self._node or not reference.startswith("ref_"):
            raise UnknownReferenceError(reference)
        record, content = self._elsewhere(node, reference, tenant)
        try:
            with self._quota(tenant, content.size):
                self._keep(_name(reference, tenant), record, content)
        except CenoteError:
            content.close()
            raise
        return record, content

    def _keep(self, name: str, record: bytes, content: Content) -> None:
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
        leases = list(self._leases.ends(_name(reference, tenant)))
        info = facts["info"]
        shape = info.pop("shape")
        return ReferenceRecord(
            id=reference,
            info=VariableInfo(**info, shape=tuple(shape) if shape is not None else None),
            size=facts["size"],
            parts=facts["parts"],
            holders=len(leases),
            created=facts["created"],
            expires=max(leases, default=self._clock()),
            origin=Origin(**facts["origin"]),
            node=reference.rpartition("_")[2],
        )


def _name(reference: str, tenant: str) -> str:
    return f"{tenant}/{reference}"


def _encoded(info: VariableInfo, origin: Origin, content: Content, created: float) -> bytes:
    facts = {
        "info": asdict(info),
        "origin": asdict(origin),
        "size": content.size,
        "parts": content.count,
        "created": created,
    }
    return json.dumps(facts).encode()


def view_of(content: Content) -> memoryview:
    """All bytes of a kept value."""
    return content.memory.map() if content.memory is not None else memoryview(content.inline or b"")


def content_of(record: bytes, data: memoryview) -> Content:
    """A value of another node, in memory of this one."""
    facts = json.loads(record)
    return Content(size=facts["size"], count=facts["parts"], memory=SealedMemory.create([data]))


def _content(record: bytes, descriptor: int) -> Content:
    facts = json.loads(record)
    return Content(size=facts["size"], count=facts["parts"], memory=SealedMemory(descriptor, facts["size"]))
