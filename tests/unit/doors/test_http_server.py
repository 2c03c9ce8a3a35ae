"""How answers leave the HTTP server: in as few packets as they can, and no faster than their reader takes them."""

from __future__ import annotations

import asyncio

import pytest

from cenote.doors.http_server import GatheringTransport

pytestmark = pytest.mark.asyncio


class Recorded(asyncio.Transport):
    """Notes what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes | str] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.seen.append(data)

    def close(self) -> None:
        self.seen.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.seen


async def test_a_head_and_its_body_leave_together() -> None:
    below = Recorded()
    transport = GatheringTransport(below)
    transport.write(b"head ")
    transport.write(b"body")
    transport.write(b"")
    assert [] == below.seen
    await asyncio.sleep(0)
    assert [b"head body"] == below.seen
    transport.write(b"next")
    await asyncio.sleep(0)
    assert [b"head body", b"next"] == below.seen


async def test_a_long_body_is_not_gathered_so_that_a_slow_reader_is_noticed() -> None:
    below = Recorded()
    transport = GatheringTransport(below)
    transport.write(b"head ")
    transport.write(b"x" * 65_536)
    assert [b"head " + b"x" * 65_536] == below.seen
    await asyncio.sleep(0)
    assert 1 == len(below.seen)


async def test_what_is_written_before_the_end_is_sent_before_it() -> None:
    below = Recorded()
    transport = GatheringTransport(below)
    transport.write(b"last")
    transport.close()
    assert [b"last", "closed"] == below.seen
    assert transport.is_closing()
