"""An injection as a keeper has it: a record, and descriptors of what is too large for one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_worker.content import Content
from cenote_worker.hosted.injection import Injection
from cenote_worker.supervisor.requests import OWNER, Seat

_TRUSTED = 1 << 40
"""Bytes. A keeper has what its own clients gave it; this only catches nonsense."""


def to_record(injection: Injection) -> tuple[bytes, list[int], Content]:
    """The record, the descriptors, and what has to be closed when they were passed on."""
    message = runtime_pb2.Injection(
        reference=injection.reference,
        name=injection.single,
        replaces=injection.replaces,
        names=injection.names,
        hosts=injection.hosts,
        author=injection.seat.author,
        private=injection.seat.private,
        client=injection.client,
        step=injection.step,
    )
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
    injection = Injection(
        # As it comes: a shared value that was on disk has no seals.
        values=Content.delivered(message.values, values),
        reference=message.reference,
        single=message.name,
        replaces=message.replaces,
        names=tuple(message.names),
        hosts=tuple(message.hosts),
        number=number,
        step=message.step,
        seat=Seat(author=message.author, private=message.private) if message.author else OWNER,
        client=message.client,
    )
    for descriptor in (*values, *left):
        os.close(descriptor)
    return injection
