"""The gateway's own connections to nodes. On one event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
import grpc.aio

from cenote_worker.wire.channels import CLIENT

_IDLE: Final = 64
"""Connections that are kept for the next call."""


class Upstream:
    """One connection per address, for as long as somebody uses it, and a while after. credentials: for TLS."""

    def __init__(self, credentials: grpc.ChannelCredentials | None = None) -> None:
        self._credentials = credentials
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._users: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def to(self, address: str) -> Iterator[grpc.aio.Channel]:
        """The connection, to be used inside."""
        channel = self._channels.pop(address, None) or self._open(address)
        self._channels[address] = channel  # behind the others: the first ones are the longest unused
        self._users[address] += 1
        try:
            yield channel
        finally:
            self._users[address] -= 1
            self._let_go()

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing)

    def _open(self, address: str) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=CLIENT)
        return grpc.aio.secure_channel(address, self._credentials, options=CLIENT)

    def _let_go(self) -> None:
        idle = [address for address in self._channels if not self._users[address]]
        for address in idle[: max(len(idle) - _IDLE, 0)]:
            del self._users[address]
            task = asyncio.create_task(self._channels.pop(address).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
