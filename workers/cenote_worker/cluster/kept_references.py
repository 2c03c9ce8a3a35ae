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
from typing import Final, Protocol

from cenote_security.errors import UnavailableError, UnknownReferenceError, UsageError
from cenote_security.sealed import SealedMemory
from cenote_worker.content import Content
from cenote_worker.keeper.client import KeeperClient
from cenote_worker.results import VariableInfo
from cenote_worker.serving.references import MAX_HOLDERS, Origin, ReferenceRecord
from cenote_worker.tenancy.machine_quotas import MachineQuotas

VALUES: Final = "value/"
LEASES: Final = "lease/"


COPY: Final = "copy"
"""The holder of a value that was brought from another node, for whoever needs it here next."""

COPY_SECONDS: Final = 60.0
"""For how long a copy is kept that nobody uses."""


class Elsewhere(Protocol):
    """Brings values from other nodes."""

    def __call__(self, reference: str, tenant: str) -> None:
        """Has `adopt` called with a value that another node keeps. Raises UnknownReferenceError, UnavailableError."""


class KeptReferences:
    """A ReferenceStore over the keeper. room: bytes that all values of the node together may have.

    elsewhere: None for this node's values alone. quotas: what each tenant may have of them.
    """

    def __init__(
        self,
        keeper: KeeperClient,
        node: str,
        room: int,
        elsewhere: Elsewhere | None = None,
        clock: Callable[[], float] = time.time,
        quotas: MachineQuotas | None = None,
    ) -> None:
        self._keeper = keeper
        self._node = node
        self._room = room
        self._elsewhere = elsewhere
        self._clock = clock
        self._quotas = quotas

    def put(
        self, content: Content, info: VariableInfo, origin: Origin, *, holder: str, lease: float
    ) -> ReferenceRecord:
        try:
            # 128 bits that nobody meets by trying; the node and the size, so that finding it takes no directory.
            reference = f"ref_{secrets.token_hex(16)}_{content.size:x}_{self._node}"
            record = _encoded(info, origin, content, self._clock())
            with self._quota(origin.tenant, content.size):
                self._check_room(content.size)
                self._lease(reference, origin.tenant, holder, lease)
                self._keep(_value_key(origin.tenant, reference), record, content)
        finally:
            content.close()
        return self.describe(reference, origin.tenant)

    def describe(self, reference: str, tenant: str) -> ReferenceRecord:
        record, content = self._get(reference, tenant)
        content.close()
        return self._decoded(reference, tenant, record)

    def content(self, reference: str, tenant: str) -> Content:
        return self._get(reference, tenant)[1]

    def sealed(self, reference: str, tenant: str) -> tuple[bytes, Content]:
        """The record and the value, for another node. Raises UnknownReferenceError for what is not kept here."""
        return self._kept(reference, tenant)

    def keeps(self, reference: str) -> bool:
        """Whether it is here, whoever's it is."""
        return any(key.endswith(f"/{reference}") for key in self._keeper.keys(VALUES))

    def adopt(self, reference: str, tenant: str, record: bytes, content: Content) -> None:
        """Keeps a value of another node here too, for a while. Takes the content over.

        Raises UnavailableError without room for it, QuotaExceededError when its tenant has as much as it may have.
        """
        try:
            with self._quota(tenant, content.size):
                self._check_room(content.size)
                self._lease(reference, tenant, COPY, COPY_SECONDS)
                self._keep(_value_key(tenant, reference), record, content)
        finally:
            content.close()

    def hold(self, reference: str, tenant: str, *, holder: str, lease: float) -> ReferenceRecord:
        found = self.describe(reference, tenant)
        if found.holders >= MAX_HOLDERS:
            raise UsageError(f"a reference has at most {MAX_HOLDERS} holders")
        self._lease(reference, tenant, holder, lease)
        return self.describe(reference, tenant)  # it may have been swept away meanwhile: then it is not held

    def release(self, reference: str, tenant: str, *, holder: str) -> None:
        if self._keeper.get(_lease_key(tenant, reference, holder)) is None and self._is_own(reference):
            self._kept(reference, tenant)[1].close()
        self._keeper.drop(_lease_key(tenant, reference, holder))
        if not any(self._leases(tenant, reference)):
            self._keeper.drop(_value_key(tenant, reference))

    def list(self, tenant: str, *, after: str, limit: int) -> list[ReferenceRecord]:
        prefix = f"{VALUES}{tenant}/"
        names = [key.removeprefix(prefix) for key in self._keeper.keys(prefix)]
        records = []
        for name in [name for name in names if name > after][:limit]:
            try:
                records.append(self.describe(name, tenant))
            except UnknownReferenceError:
                continue
        return records

    def used(self) -> tuple[int, int]:
        """How many values the node keeps, and their bytes."""
        sizes = [_size(key) for key in self._keeper.keys(VALUES)]
        return len(sizes), sum(sizes)

    def stored(self, tenant: str) -> int:
        return sum(map(_size, self._keeper.keys(f"{VALUES}{tenant}/")))

    def sweep(self) -> None:
        """Lets go of what nobody holds any more. For the node's agent, from time to time."""
        now, held = self._clock(), set[str]()
        for key in self._keeper.keys(LEASES):
            kept = self._keeper.get(key)
            if kept is not None and float(kept.record) > now:
                held.add(key.removeprefix(LEASES).rpartition("/")[0])
            else:
                self._keeper.drop(key)
        for key in self._keeper.keys(VALUES):
            if key.removeprefix(VALUES) not in held:
                self._keeper.drop(key)

    # -- entries --

    def _get(self, reference: str, tenant: str) -> tuple[bytes, Content]:
        """Here or, for another node's, from there: once, while anybody here uses it."""
        if self._elsewhere is None or self._is_own(reference):
            return self._kept(reference, tenant)
        try:
            found = self._kept(reference, tenant)
        except UnknownReferenceError:
            self._elsewhere(reference, tenant)
            found = self._kept(reference, tenant)
        self._lease(reference, tenant, COPY, COPY_SECONDS)
        return found

    def _kept(self, reference: str, tenant: str) -> tuple[bytes, Content]:
        kept = self._keeper.get(_value_key(tenant, reference))
        if kept is None:
            raise UnknownReferenceError(reference)
        return kept.record, _content(kept.record, kept.descriptors[0])

    def _is_own(self, reference: str) -> bool:
        """What is no name of a reference is nobody else's."""
        return not reference.startswith("ref_") or _node_of(reference) == self._node

    def _keep(self, key: str, record: bytes, content: Content) -> None:
        memory = content.memory or SealedMemory.create([content.inline or b""])
        try:
            self._keeper.put(key, record, [memory.fileno()])
        finally:
            if content.memory is None:
                memory.close()

    def _lease(self, reference: str, tenant: str, holder: str, lease: float) -> None:
        key = _lease_key(tenant, reference, holder)
        known = self._keeper.get(key)
        until = max(self._clock() + lease, float(known.record) if known is not None else 0.0)
        self._keeper.put(key, repr(until).encode())

    def _leases(self, tenant: str, reference: str) -> Iterator[float]:
        """When those that still count end."""
        for key in self._keeper.keys(_lease_key(tenant, reference, "")):
            kept = self._keeper.get(key)
            if kept is not None and float(kept.record) > self._clock():
                yield float(kept.record)

    def _quota(self, tenant: str, size: int) -> AbstractContextManager[None]:
        return nullcontext() if self._quotas is None else self._quotas.room(tenant, size, self.stored)

    def _check_room(self, size: int) -> None:
        _, used = self.used()
        if used + size > self._room:
            raise UnavailableError(
                f"there is no room for {size} more bytes of shared values: {used} of {self._room} "
                f"are taken; release references that nobody needs"
            )

    def _decoded(self, reference: str, tenant: str, record: bytes) -> ReferenceRecord:
        facts = json.loads(record)
        leases = list(self._leases(tenant, reference))
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
            node=_node_of(reference),
        )


def _node_of(reference: str) -> str:
    """Where it was shared."""
    return reference.rpartition("_")[2]


def _value_key(tenant: str, reference: str) -> str:
    return f"{VALUES}{tenant}/{reference}"


def _lease_key(tenant: str, reference: str, holder: str) -> str:
    return f"{LEASES}{tenant}/{reference}/{holder}"


def _size(key: str) -> int:
    return int(key.split("_")[-2], 16)


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
