"""What a jail has references to, by the numbers that it knows them by."""

from __future__ import annotations

import itertools
import math
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import UnknownReferenceError
from cenote_worker.content import Content
from cenote_worker.results import VariableInfo
from cenote_worker.serving.place import Offerer, Place, holders_of
from cenote_worker.serving.references import Held, Origin, ReferenceRecord
from cenote_worker.supervisor.host_line import HostReference

NUMBER_BITS: Final = 60
"""Of the first number: so many follow it below 2^64 that nobody counts to the end.

By chance, since a relay may follow another, whose process was killed: its clients still work on calls of that one,
and its jail has handles of it. The same number there would be taken for the same thing.
"""

_HOLDER: Final = re.compile("runtime [^ ]+ handle (?P<number>[0-9]+) (?P<client>.*)", re.DOTALL)

_MAX_TOLD: Final = 64
"""Bytes of a client's id that go into the name of a holder, which is short. Ours have fewer."""


@dataclass(frozen=True, slots=True)
class Handle:
    """A reference in a jail. client: the id of who gave it; empty where that is not known any more."""

    reference: str
    tenant: str
    client: str


class Handles:
    """Of one served runtime. Each holds its reference for as long as the jail has it."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1 + secrets.randbits(NUMBER_BITS))
        self._handles: dict[int, Handle] = {}
        self._dropped: set[int] = set()
        """Of those, what the jail dropped and the loop has not seen to, or there was no place for."""

    def take_up(self, held: Held) -> bool:
        """What a former relay has handed out, whose process was killed. False for what is no handle."""
        found = _HOLDER.fullmatch(held.holder)
        if found is not None:
            self._handles[int(found["number"])] = Handle(held.reference, held.tenant, found["client"])
        return found is not None

    def get(self, number: int) -> Handle | None:
        return self._handles.get(number)

    # -- on a thread --

    def hand_out(self, place: Place, reference: str, client: Offerer) -> HostReference:
        """A reference that the client has. Raises UnknownReferenceError, UnavailableError."""
        number = next(self._numbers)
        holder = _holder(place, number, _told(client))
        record = place.references.hold(reference, client.tenant, holder=holder, lease=math.inf)
        return self._handed_out(number, record, client)

    def keep(self, place: Place, content: Content, info: VariableInfo, client: Offerer) -> HostReference:
        """A value that the client has sent along. Raises UnavailableError."""
        number = next(self._numbers)
        holder = _holder(place, number, _told(client))
        origin = Origin(tenant=client.tenant, runtime=place.id, step=place.step)
        told = replace(info, size=content.size)
        record = place.references.put(content, told, origin, holder=holder, lease=math.inf)
        return self._handed_out(number, record, client)

    def _handed_out(self, number: int, record: ReferenceRecord, client: Offerer) -> HostReference:
        self._handles[number] = Handle(record.id, client.tenant, _told(client))
        return HostReference(number, record.info)

    # -- what the jail drops, on the reactor's thread --

    def drop(self, number: int) -> bool:
        """Whether there is something to `release` now: a jail may say anything, as often as it likes."""
        if number not in self._handles or number in self._dropped:
            return False
        self._dropped.add(number)
        return True

    # -- on the loop --

    def release_dropped(self, place: Place) -> None:
        """What was dropped while there was no place."""
        for number in list(self._dropped):
            self.release(place, number)

    def release_all(self, place: Place) -> None:
        """The jail has gone."""
        for number in list(self._handles):
            self.release(place, number)

    def release(self, place: Place, number: int) -> None:
        handle = self._handles.pop(number, None)
        self._dropped.discard(number)
        if handle is None:
            return
        let_go(place, handle.reference, handle.tenant, _holder(place, number, handle.client))
        client = place.client(handle.client)
        if client is not None:
            told = make(runtime_pb2.ReferenceDropped, reference=handle.reference)
            client.tell(runtime_pb2.ServerFrame(reference_dropped=told))


def let_go(place: Place, reference: str, tenant: str, holder: str) -> None:
    """From the loop: the holder does not need it any more."""
    store = place.references

    def release() -> None:
        with suppress(UnknownReferenceError):
            store.release(reference, tenant, holder=holder)

    place.apart(release)


def _holder(place: Place, number: int, client: str) -> str:
    return f"{holders_of(place.id)}handle {number} {client}"


def _told(client: Offerer) -> str:
    """What the name of a holder says of whose it is."""
    return client.id if len(client.id.encode()) <= _MAX_TOLD else ""
