"""An injection as a keeper has it, a record and descriptors of what is too large for one, or a history: as bytes."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.sealed import SealedMemory
from cenote_worker.content import INLINE_LIMIT, Content
from cenote_worker.hosted.injection import Injection
from cenote_worker.supervisor.requests import OWNER, Seat

_LENGTH: Final = struct.Struct("<Q")
"""Of what comes before the values."""

_TRUSTED = 1 << 40
"""Bytes. A keeper has what its own clients gave it; this only catches nonsense."""


def to_record(injection: Injection) -> tuple[bytes, list[int], Content]:
    """The record, the descriptors, and what has to be closed when they were passed on."""
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
    """All of it: what it puts in, for whom, and nothing of when. Equal injections have equal bytes.

    The values are behind the rest, so that they are copied once.
    """
    message, values = _told(injection), injection.values
    message.values.size, message.values.count = values.size, values.count
    told = message.SerializeToString(deterministic=True)
    whole = values.memory.map() if values.memory is not None else values.inline or b""
    return b"".join((_LENGTH.pack(len(told)), told, whole))


def from_bytes(data: bytes) -> Injection:
    """What `to_bytes` has made these of; whoever has it closes it. Raises OSError when the machine has no memory."""
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    message = runtime_pb2.Injection.FromString(data[_LENGTH.size : end])
    size, count, whole = message.values.size, message.values.count, memoryview(data)[end:]
    if size <= INLINE_LIMIT:
        return _read(message, Content(size=size, count=count, inline=bytes(whole)))
    return _read(message, Content(size=size, count=count, memory=SealedMemory.create([whole])))


def _told(injection: Injection) -> runtime_pb2.Injection:
    """Without its values, and without what is said of it elsewhere."""
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
        seat=Seat(author=message.author, private=message.private) if message.author else OWNER,
        client=message.client,
    )
