"""One injection as it reaches a jail, and again each later jail of the same runtime; and its stored forms.

The descriptor store has a record, and descriptors for what is too large for one; a history has bytes. A stored
state has the stubs of objects that stay with clients: a jail that begins with it has them again.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import checkpoint_pb2, jail_pb2, runtime_pb2
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.history.events import ValuesInjected
from cenote_worker.history.step import START
from cenote_worker.supervisor.requests import OWNER, AuthorSession
from cenote_worker.transport.content import INLINE_LIMIT, Content

NOTHING = Content(size=0, count=0, inline=b"")
"""The values of an injection that names a reference."""


T = TypeVar("T")


def in_place(earlier: Iterable[T], new: T, superseded: Callable[[T], bool]) -> list[T]:
    """The items, with the new one in the place of the first that it supersedes, or at the end; without the
    superseded.

    A name that gets another value stays where it is in its namespace.
    """
    there, taken = list[T](), False
    for each in earlier:
        if not superseded(each):
            there.append(each)
        elif not taken:
            there.append(new)
            taken = True
    return there if taken else [*there, new]


@dataclass(slots=True, kw_only=True, eq=False)
class Injection:
    """Values for a namespace, and stubs for objects that stay with their client. The owner of an injection closes it.

    values: a pickle, never loaded here: of one value where `single` names it, else of two dictionaries, values
    and classes that go along. reference: instead of values, the platform's reference to the value; resolved by the
    runtime's host. replaces: the name whose former value later jails need not get any more.
    number: under which it is stored for a successor; 0 if it is not. step: of the history; START before the first.
    content: its id in the history, see StepRecord; empty before it was first used. form: as the history is about to
    store it. given_up: names that later injections have given another value, or that were deleted.
    seat: whose namespace it is for. client: whom the calls of `hosts` are for; empty for the runtime's owner.
    """

    values: Content
    reference: str = ""
    single: str = ""
    replaces: str = ""
    names: tuple[str, ...] = ()
    hosts: tuple[jail_pb2.HostTarget, ...] = ()
    number: int = 0
    step: int = START
    seat: AuthorSession = OWNER
    client: str = ""
    content: str = ""
    form: bytes = b""
    given_up: frozenset[str] = frozenset()

    def supersedes(self, other: Injection) -> bool:
        """Whether later jails need not get the other one any more."""
        return other.is_over(self.names, self.seat)

    def gives(self, name: str, seat: AuthorSession) -> bool:
        """Whether a later jail gets this name of the session's namespace from it."""
        return self._namespace == namespace_of(seat) and name in self._left

    def is_over(self, names: Iterable[str], seat: AuthorSession) -> bool:
        """Whether nothing is left of it once these names of the session's have another value, or none."""
        return bool(self.names) and self._namespace == namespace_of(seat) and not self._left.difference(names)

    def give_up(self, names: Iterable[str], seat: AuthorSession) -> None:
        """These names of the session's have another value, or none: a later jail does not get this injection for
        them."""
        if self._namespace == namespace_of(seat):
            self.given_up |= self._left.intersection(names)

    @property
    def _left(self) -> frozenset[str]:
        return frozenset(self.names) - self.given_up

    @property
    def put_in(self) -> ValuesInjected:
        """As the history records it."""
        return ValuesInjected(names=self.qualified_names, content=self.content, replaces=bool(self.replaces))

    @property
    def size(self) -> int:
        """Bytes stored for later jails."""
        return self.values.size + sum(target.ByteSize() for target in self.hosts)

    @property
    def qualified_names(self) -> tuple[str, ...]:
        """Its names, after the author's where they are the author's own."""
        return tuple(f"{self._namespace}/{each}" for each in self.names) if self._namespace else self.names

    @property
    def _namespace(self) -> str:
        return namespace_of(self.seat)

    def request(
        self, *, replace: bool, descriptors: list[int], owned: list[Callable[[], None]]
    ) -> jail_pb2.Request:
        """The message. Appends the descriptors that travel with it, and what has to be called once it is sent.

        Where it has host functions, the caller adds the end of a channel for their calls after these descriptors.
        """
        request = jail_pb2.Request()
        self.values.to_wire(request.inject.values, descriptors)
        if self.hosts:
            hosts = Content.pack([jail_pb2.HostTargets(targets=self.hosts).SerializeToString()])
            hosts.to_wire(request.inject.hosts, descriptors)
            owned.append(hosts.close)
        request.inject.replace = replace
        request.inject.name = utf8_text(self.single)
        request.inject.has_host_channel = bool(self.hosts)
        return request

    def close(self) -> None:
        self.values.close()


def namespace_of(seat: AuthorSession) -> str:
    """Whose names a session's are: empty for the common ones."""
    return seat.author if seat.private else ""


_LENGTH: Final = struct.Struct("<Q")
"""Length of the part before the values."""

_TRUSTED = 1 << 40
"""Bytes. The store's content comes from its own clients; this only catches nonsense."""


def to_record(injection: Injection) -> tuple[bytes, list[int], Content]:
    """The record, the descriptors, and the content to close when they were passed on."""
    message = _told(injection)
    message.step, message.content = injection.step, injection.content
    descriptors: list[int] = []
    injection.values.to_wire(message.values, descriptors)
    # The documentation of an object with hundreds of methods is larger than a packet.
    content = Content.of_bytes(message.SerializeToString())
    payload = jail_pb2.Payload()
    content.to_wire(payload, descriptors)
    return payload.SerializeToString(), descriptors, content


def from_record(record: bytes, descriptors: Sequence[int], number: int) -> Injection:
    """Takes over the descriptors. Raises ProtocolViolation for what `to_record` did not make."""
    left = list(descriptors)
    payload = jail_pb2.Payload.FromString(record)
    values = [left.pop(0)] if len(left) > payload.attached else []
    content = Content.from_wire(payload, left, _TRUSTED)
    message = runtime_pb2.Injection.FromString(content.whole())
    content.close()
    # As it comes: a shared value that was on disk has no seals.
    injection = _read(message, Content.delivered(message.values, values))
    injection.number, injection.step, injection.content = number, message.step, message.content
    for descriptor in (*values, *left):
        os.close(descriptor)
    return injection


def to_bytes(injection: Injection) -> bytes:
    """The whole injection: its values and whose namespace they are for, but not its time. Equal injections have equal
    bytes.

    The values come last, so that they are copied once.
    """
    message, values = _told(injection), injection.values
    message.values.size, message.values.count = values.size, values.count
    told = message.SerializeToString(deterministic=True)
    whole = values.memory.map() if values.memory is not None else values.inline or b""
    return b"".join((_LENGTH.pack(len(told)), told, whole))


def from_bytes(data: bytes) -> Injection:
    """The injection that `to_bytes` stored; the caller closes it. Raises OSError when the machine has no memory."""
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    message = runtime_pb2.Injection.FromString(data[_LENGTH.size : end])
    size, count, whole = message.values.size, message.values.count, memoryview(data)[end:]
    if size <= INLINE_LIMIT:
        return _read(message, Content(size=size, count=count, inline=bytes(whole)))
    return _read(message, Content(size=size, count=count, memory=SealedMemory.create([whole])))


def _told(injection: Injection) -> runtime_pb2.Injection:
    """The message without the values, and without what is stored elsewhere."""
    return make(
        runtime_pb2.Injection,
        reference=injection.reference,
        name=injection.single,
        replaces=injection.replaces,
        names=injection.names,
        hosts=injection.hosts,
        author=injection.seat.author,
        private=injection.seat.private,
        client=injection.client,
    )


def _read(message: runtime_pb2.Injection, values: Content) -> Injection:
    return Injection(
        values=values,
        reference=message.reference,
        single=message.name,
        replaces=message.replaces,
        names=tuple(message.names),
        hosts=tuple(message.hosts),
        seat=AuthorSession(author=message.author, private=message.private) if message.author else OWNER,
        client=message.client,
    )


_NO_VALUES: Final = b"\x80\x05}}\x86."
"""The pickle of two empty dictionaries: an injection of stubs alone."""


def stubs(hosts: Iterable[jail_pb2.HostTarget], client: str = "", seat: AuthorSession = OWNER) -> Injection:
    """An injection of these and nothing else."""
    hosts = tuple(hosts)
    return Injection(
        values=Content.pack([_NO_VALUES]),
        names=tuple(host.name for host in hosts),
        hosts=hosts,
        client=client,
        seat=seat,
    )


def offers_of(injections: Iterable[Injection]) -> tuple[checkpoint_pb2.Offer, ...]:
    """The offers of all injections; of two for one name, the later."""
    latest: dict[tuple[AuthorSession | str, str], tuple[Injection, jail_pb2.HostTarget]] = {}
    for injection in injections:
        for host in injection.hosts:
            namespace = injection.seat.author if injection.seat.private else ""
            latest[namespace, host.name] = injection, host
    return tuple(
        make(
            checkpoint_pb2.Offer,
            targets=[host],
            client=injection.client,
            author=injection.seat.author,
            private=injection.seat.private,
        )
        for injection, host in latest.values()
    )


def injections_of(offers: Iterable[checkpoint_pb2.Offer]) -> list[Injection]:
    return [
        stubs(
            offer.targets,
            offer.client,
            AuthorSession(author=offer.author, private=offer.private) if offer.author else OWNER,
        )
        for offer in offers
    ]
