"""Copies bytes between a jail and a server, through small buffers: who reads slowly slows down who writes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from cenote_worker.egress.ledger import Ledger
from cenote_worker.egress.reply import Mask, Reply
from cenote_worker.egress.server_hello import asks_again

CHUNK = 64 * 2**10
"""Bytes in hand per direction. Twice as much may wait in each of a connection's four buffers."""


KERNEL_BUFFER = 512 * 2**10
"""Bytes that the kernel keeps of a side that sends while the other does not read. It would give six mebibytes, for
each connection; this much still fills a line of 40 Mbit/s at 100 ms."""


HearAgain = Callable[[bytes], Awaitable[tuple[bytes, bytes]]]
"""Given what came behind a first hello, gives a second one and what came behind that."""


class Side(Protocol):
    """What a Relay needs of one of its two sides."""

    async def read(self, most: int) -> bytes:
        """What is there, once something is; empty at the end."""
        ...

    async def send(self, chunk: bytes) -> None:
        """Returns when there is room for more."""
        ...

    def end(self) -> None:
        """Nothing more is sent."""
        ...


@dataclass(frozen=True, slots=True)
class Stream:
    """A connection as one of the two sides."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def over(cls, sock: socket.socket, tls: ssl.SSLContext | None = None, host: str = "") -> Stream:
        """Takes over a connected socket. tls: the server is to show that it is `host`. Raises OSError."""
        reader, writer = await asyncio.open_connection(
            sock=sock, limit=CHUNK, ssl=tls, server_hostname=host if tls else None
        )
        return cls(reader, writer)

    async def read(self, most: int) -> bytes:
        return await self.reader.read(most)

    async def send(self, chunk: bytes) -> None:
        self.writer.write(chunk)
        await self.writer.drain()

    def end(self) -> None:
        if self.writer.can_write_eof():  # TLS has no half of a connection
            self.writer.write_eof()

    def abort(self) -> None:
        """Close at once, whatever was not sent yet."""
        self.writer.transport.abort()


class RelayEnded(Exception):
    """Nothing more may pass; the text says why."""


class Relay:
    """One exchange between two sides. Ends when both end, when nothing moves for `idle` seconds, or by RelayEnded."""

    def __init__(self, near: Side, far: Side, ledger: Ledger, idle: float) -> None:
        self._near = near
        self._far = far
        self._ledger = ledger
        self._idle = idle
        self._patience = asyncio.timeout(idle)
        self.passed = 0
        """Bytes, both ways, so far."""

    async def tunnel(self, hello: bytes, behind: bytes, again: HearAgain) -> None:
        """Everything, both ways, once the server has answered the hello for it and wants no other.

        behind: what the jail has sent after it. Nothing of that passes before the server's answer: it could be a
        second hello, which nobody has asked for yet. again: hears that one when it is asked for.
        """
        with _first_failure():
            async with self._patience, asyncio.TaskGroup() as group:
                await self._pass(hello, self._far)
                if await self._pass_answer():
                    hello, behind = await again(behind)
                    await self._pass(hello, self._far)
                await self._pass(behind, self._far)
                group.create_task(self._copy(self._near, self._far))
                group.create_task(self._copy(self._far, self._near))

    async def _pass_answer(self) -> bool:
        """The first bytes of the server. True when they ask for another hello."""
        answer = b""
        while (retry := asks_again(answer)) is None:
            chunk = await self._far.read(CHUNK)
            if not chunk:
                break
            answer += chunk
        await self._pass(answer, self._near)
        return retry is True

    async def request(self, head: bytes, body: int, mask: Mask | None = None) -> None:
        """One request, whose body has so many bytes, and all that is answered. mask: of the answer."""
        with _first_failure():
            async with self._patience, asyncio.TaskGroup() as group:
                await self._pass(head, self._far)
                asking = group.create_task(self._ask(body))
                await self._pass_reply(mask or Mask(""))
                asking.cancel()

    async def _pass_reply(self, mask: Mask) -> None:
        reply = Reply()
        while chunk := await self._far.read(CHUNK):
            if passed := mask.take(reply.take(chunk)):
                await self._pass(passed, self._near)
        if rest := mask.take(reply.rest()) + mask.rest():
            await self._pass(rest, self._near)
        self._near.end()

    async def _copy(self, source: Side, sink: Side) -> None:
        while chunk := await source.read(CHUNK):
            await self._pass(chunk, sink)
        sink.end()

    async def _ask(self, body: int) -> None:
        while body:
            chunk = await self._near.read(min(body, CHUNK))
            if not chunk:
                raise RelayEnded("the body of a request was cut short")
            body -= len(chunk)
            await self._pass(chunk, self._far)
        if await self._near.read(1):
            raise RelayEnded("a second request on a connection for one")

    async def _pass(self, chunk: bytes, sink: Side) -> None:
        if not self._ledger.spend(len(chunk)):
            raise RelayEnded("the volume of the network policy is used up")
        self.passed += len(chunk)
        await sink.send(chunk)
        self._patience.reschedule(asyncio.get_running_loop().time() + self._idle)


@contextmanager
def _first_failure() -> Iterator[None]:
    """Of a group: the other direction only failed because its partner did, or in the same way."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
