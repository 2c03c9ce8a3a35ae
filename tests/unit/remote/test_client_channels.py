"""Connections of a client: few, and never one too many streams on any."""

from __future__ import annotations

from contextlib import ExitStack

from tests.waiting import PATIENCE

from cenote.runtime.remote.background import background
from cenote.runtime.remote.channels import IDLE, STREAMS, Channels
from cenote_worker.wire.channels import SERVER


async def _streams(channels: Channels, address: str, count: int) -> list[int]:
    """How many streams each connection carries for this total."""
    with ExitStack() as stack:
        used = [stack.enter_context(channels.stream(address)) for _ in range(count)]
        return sorted(used.count(channel) for channel in set(used))


def run(address: str, *counts: int) -> list[list[int]]:
    async def work() -> list[list[int]]:
        channels = Channels()
        try:
            return [await _streams(channels, address, count) for count in counts]
        finally:
            await channels.close()

    return background().wait(work(), PATIENCE, "count")


def test_streams_share_connections() -> None:
    """Up to the number that servers allow; the next one gets another connection."""
    assert dict(SERVER)["grpc.max_concurrent_streams"] >= STREAMS
    shared, more = run("127.0.0.1:1", STREAMS, STREAMS + 1)
    assert ([STREAMS], [1, STREAMS]) == (shared, more)


def test_idle_connections_are_few() -> None:
    """Runtimes come and go at many addresses; a few connections are retained for reuse."""

    async def work() -> int:
        channels = Channels()
        for port in range(1, 3 * IDLE):
            with channels.stream(f"127.0.0.1:{port}"):
                pass
        left = sum(map(len, channels._streaming.values()))
        await channels.close()
        return left

    assert IDLE == background().wait(work(), PATIENCE, "count")


def test_calls_that_end_soon_share_one() -> None:
    """One connection for each address."""

    async def work() -> bool:
        channels = Channels()
        same = channels.to("127.0.0.1:1") is channels.to("127.0.0.1:1")
        await channels.close()
        return same

    assert background().wait(work(), PATIENCE, "count")
