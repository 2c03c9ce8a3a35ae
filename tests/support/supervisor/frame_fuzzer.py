"""Broken messages for the three decoders of a jail's output: frames, host calls, the warden's JSON.

A corpus line is `decoder hex name`. `mutations` breaks its messages in seeded ways; `feed` gives one to its decoder,
over a real socket where the decoder reads one.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.supervisor import frame_parser
from cenote_worker.supervisor.channels.host_calls import HostCall, HostCallChannel
from cenote_worker.supervisor.channels.warden import WardenChannel
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.transport.packets import MAX_PACKET, Packet

CORPUS = Path(__file__).with_name("frames.corpus")
LIMIT = 64 * 1024


@dataclass(frozen=True)
class Seed:
    decoder: str
    data: bytes
    name: str


def corpus() -> list[Seed]:
    lines = [line.split(" ", 2) for line in CORPUS.read_text().splitlines() if not line.startswith("#")]
    return [Seed(decoder, bytes.fromhex(data), name) for decoder, data, name in lines]


def bodies(seeds: list[Seed]) -> set[str]:
    """The bodies of frames and replies that occur in the corpus."""
    found: set[str] = set()
    for seed in seeds:
        if seed.decoder == "edge":
            with suppress(Exception):
                frame = jail_pb2.WorkerFrame.FromString(seed.data)
                found |= {frame.WhichOneof("body") or "", frame.reply.WhichOneof("body") or ""}
    return found - {""}


def mutations(seeds: list[Seed], chance: random.Random, count: int) -> Iterator[Seed]:
    for _ in range(count):
        seed = chance.choice(seeds)
        data = bytearray(seed.data)
        for _ in range(chance.choice([1, 1, 1, 2, 5])):
            _break(data, chance, chance.choice(seeds).data)
        yield Seed(seed.decoder, bytes(data[:MAX_PACKET]), seed.name)


def _break(data: bytearray, chance: random.Random, other: bytes) -> None:
    place = chance.randrange(len(data) + 1)
    match chance.randrange(6):
        case 0:
            data[place : place + 1] = bytes([chance.randrange(256)])
        case 1:
            del data[place : place + chance.randint(1, 16)]
        case 2:
            data[place:place] = data[place : place + chance.randint(1, 64)]
        case 3:
            start = chance.randrange(len(other) + 1)
            data[place:place] = other[start : start + chance.randint(1, 64)]
        case 4:
            data[place : place + 1] = (
                b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"  # a length or number near the end
            )
        case 5:
            data[place:place] = chance.choice(
                [b"[" * 3000, b"\x22" * 3000, b"9" * 5000, b"\\ud800", b"\0" * 100]
            )


class Refuser:
    """A handler of host calls that counts and discards them."""

    def __init__(self) -> None:
        self.calls = 0

    def call(self, line: HostCallChannel, call: HostCall) -> None:
        self.calls += 1
        call.close()

    def cancel(self, call_id: int) -> None:
        self.calls += 1

    def release(self, reference: int) -> None:
        self.calls += 1

    def ended(self) -> None:
        self.calls += 1


class Deaf:
    """Observes a control line and does nothing."""

    def ended(self, death: JailExit) -> None: ...

    def revived(self, death: JailExit, step: int, pid: int) -> None: ...

    def rolled_back(self, step: int | None, pid: int) -> None: ...

    def dropped(self) -> None: ...


def feed(seed: Seed, descriptors: int = 0) -> bool:
    """Whether the decoder accepted the message; False for a violation. Other exceptions are bugs in the decoder."""
    try:
        match seed.decoder:
            case "edge":
                pipes = [os.open("/dev/null", os.O_RDONLY) for _ in range(descriptors)]
                _close(frame_parser.parse(Packet(seed.data, pipes), display_limit=LIMIT, value_limit=LIMIT))
            case "host":
                _over_socket(seed.data, lambda sock: HostCallChannel(sock, Refuser(), LIMIT).read(1))
            case "control":
                _over_socket(seed.data, lambda sock: WardenChannel(sock, Deaf()).read())
    except ProtocolViolation:
        return False
    return True


def _close(event: frame_parser.JailEvent) -> None:
    content = getattr(getattr(event, "body", None), "content", None)
    if content is not None:
        content.close()


def _over_socket(data: bytes, read: Callable[[socket.socket], object]) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.send(data)
        read(ours)
