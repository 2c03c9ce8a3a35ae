"""What stays with clients, as a stored state has it: their stubs are there again in a jail that begins with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_worker.content import Content
from cenote_worker.hosted.injection import Injection
from cenote_worker.supervisor.requests import OWNER, Seat

_NO_VALUES: Final = b"\x80\x05}}\x86."
"""The pickle of two empty dictionaries: an injection of stubs alone."""


def stubs(hosts: Iterable[jail_pb2.HostTarget], client: str = "", seat: Seat = OWNER) -> Injection:
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
    """Of all of them; of two for one name, the later."""
    latest: dict[tuple[Seat | str, str], tuple[Injection, jail_pb2.HostTarget]] = {}
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
            Seat(author=offer.author, private=offer.private) if offer.author else OWNER,
        )
        for offer in offers
    ]
