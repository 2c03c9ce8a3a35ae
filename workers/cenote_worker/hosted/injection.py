"""One injection as it reaches a jail, and again each later jail of the same runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import jail_pb2
from cenote_worker.content import Content
from cenote_worker.history.events import PutIn
from cenote_worker.history.step import START
from cenote_worker.supervisor.requests import OWNER, Seat

NOTHING = Content(size=0, count=0, inline=b"")
"""The values of an injection that names a reference."""


T = TypeVar("T")


def in_place(earlier: Iterable[T], new: T, superseded: Callable[[T], bool]) -> list[T]:
    """These with the new one instead of those that it supersedes, in the place of the first of them; else at the end.

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
    """Values for a namespace, and stubs for things that stay with their client. Whoever keeps it closes it.

    values: a pickle, never opened out here: of one value where `single` names it, else of two dictionaries, values
        and classes that go along. reference: instead of values, what the platform knows the value by; resolved by
        whoever hosts the runtime. replaces: the name whose former value later jails need not get any more.
    number: what it is kept under for a successor; 0 for nothing. step: of the history; START before the first.
    content: what its history knows it by, see StepRecord; empty before it has been asked for. form: as the history is
    about to keep it. given_up: names that later ones have given another value, or that were deleted.
    seat: whose namespace it is for. client: whom the calls of `hosts` are for; empty for who holds the runtime.
    """

    values: Content
    reference: str = ""
    single: str = ""
    replaces: str = ""
    names: tuple[str, ...] = ()
    hosts: tuple[jail_pb2.HostTarget, ...] = ()
    number: int = 0
    step: int = START
    seat: Seat = OWNER
    client: str = ""
    content: str = ""
    form: bytes = b""
    given_up: frozenset[str] = frozenset()

    def supersedes(self, other: Injection) -> bool:
        """Whether later jails need not get the other one any more."""
        return other.is_over(self.names, self.seat)

    def gives(self, name: str, seat: Seat) -> bool:
        """Whether a later jail gets this name of the seat's from it."""
        return self._namespace == namespace_of(seat) and name in self._left

    def is_over(self, names: Iterable[str], seat: Seat) -> bool:
        """Whether nothing is left of it once these names of the seat's have another value, or none."""
        return bool(self.names) and self._namespace == namespace_of(seat) and not self._left.difference(names)

    def give_up(self, names: Iterable[str], seat: Seat) -> None:
        """These names of the seat's have another value, or none: it is not for them that a later jail gets this."""
        if self._namespace == namespace_of(seat):
            self.given_up |= self._left.intersection(names)

    @property
    def _left(self) -> frozenset[str]:
        return frozenset(self.names) - self.given_up

    @property
    def put_in(self) -> PutIn:
        """As a history tells of it."""
        return PutIn(names=self.qualified_names, content=self.content, replaces=bool(self.replaces))

    @property
    def size(self) -> int:
        """In bytes, of what is kept of it for later jails."""
        return self.values.size + sum(target.ByteSize() for target in self.hosts)

    @property
    def qualified_names(self) -> tuple[str, ...]:
        """Its names, behind the author's where they are the author's own."""
        return tuple(f"{self._namespace}/{each}" for each in self.names) if self._namespace else self.names

    @property
    def _namespace(self) -> str:
        return namespace_of(self.seat)

    def request(
        self, *, replace: bool, descriptors: list[int], owned: list[Callable[[], None]]
    ) -> jail_pb2.Request:
        """The message; descriptors that travel with it are appended, and what has to be called once it is sent.

        Where it has host functions the end of a line for their calls comes behind them.
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


def namespace_of(seat: Seat) -> str:
    """Whose names a seat's are: empty for the common ones."""
    return seat.author if seat.private else ""
