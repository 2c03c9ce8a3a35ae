"""The gateway's own connections to nodes. On one event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
import grpc.aio

from cenote.gateway.component_lines import ComponentLines
from cenote_security.certificates import TlsMaterial
from cenote_worker.wire.channels import CLIENT

_IDLE: Final = 64
"""Connections that are kept for the next call."""


_Line = tuple[str, TlsMaterial | None]
"""An address, and what the gateway shows there: renewed, it is another line."""


class Upstream:
    """One connection per address, for as long as somebody uses it, and a while after. lines: see ComponentLines."""

    def __init__(self, lines: ComponentLines) -> None:
        self._lines = lines
        self._channels: dict[_Line, grpc.aio.Channel] = {}
        self._users: Counter[_Line] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def to(self, address: str) -> Iterator[grpc.aio.Channel]:
        """The connection, to be used inside."""
        line = (address, self._lines.material() if self._lines.secures(address) else None)
        channel = self._channels.pop(line, None) or _open(line)
        self._channels[line] = channel  # behind the others: the first ones are the longest unused
        self._users[line] += 1
        try:
            yield channel
        finally:
            self._users[line] -= 1
            self._let_go()

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing)

    def _let_go(self) -> None:
        idle = [line for line in self._channels if not self._users[line]]
        for line in idle[: max(len(idle) - _IDLE, 0)]:
            del self._users[line]
            task = asyncio.create_task(self._channels.pop(line).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _open(line: _Line) -> grpc.aio.Channel:
    address, shown = line
    if shown is None:
        return grpc.aio.insecure_channel(address, options=CLIENT)
    credentials = grpc.ssl_channel_credentials(shown.authority, shown.own.key, shown.own.certificate)
    return grpc.aio.secure_channel(address, credentials, options=CLIENT)
