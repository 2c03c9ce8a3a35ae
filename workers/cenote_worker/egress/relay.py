"""Copies bytes between a jail and a server, through small buffers: who reads slowly slows down who writes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cenote_worker.egress.ledger import Ledger
from cenote_worker.egress.reply import Reply
from cenote_worker.egress.server_hello import asks_again

CHUNK = 64 * 2**10
"""Bytes in hand per direction. Twice as much may wait in each of a connection's four buffers."""


KERNEL_BUFFER = 512 * 2**10
"""Bytes that the kernel keeps of a side that sends while the other does not read. It would give six mebibytes, for
each connection; this much still fills a line of 40 Mbit/s at 100 ms."""


HearAgain = Callable[[bytes], Awaitable[tuple[bytes, bytes]]]
"""Given what came behind a first hello, gives a second one and what came behind that."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One of the two sides."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def over(cls, sock: socket.socket) -> Stream:
        """Takes over a connected socket."""
        reader, writer = await asyncio.open_connection(sock=sock, limit=CHUNK)
        return cls(reader, writer)

    def abort(self) -> None:
        """Close at once, whatever was not sent yet."""
        self.writer.transport.abort()


class RelayEnded(Exception):
    """Nothing more may pass; the text says why."""


class Relay:
    """One exchange between two sides. Ends when both end, when nothing moves for `idle` seconds, or by RelayEnded."""

    def __init__(self, near: Stream, far: Stream, ledger: Ledger, idle: float) -> None:
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
            chunk = await self._far.reader.read(CHUNK)
            if not chunk:
                break
            answer += chunk
        await self._pass(answer, self._near)
        return retry is True

    async def request(self, head: bytes, body: int) -> None:
        """One request, whose body has so many bytes, and all that is answered."""
        with _first_failure():
            async with self._patience, asyncio.TaskGroup() as group:
                await self._pass(head, self._far)
                asking = group.create_task(self._ask(body))
                await self._pass_reply()
                asking.cancel()

    async def _pass_reply(self) -> None:
        reply = Reply()
        while chunk := await self._far.reader.read(CHUNK):
            if passed := reply.take(chunk):
                await self._pass(passed, self._near)
        if rest := reply.rest():
            await self._pass(rest, self._near)
        self._near.writer.write_eof()

    async def _copy(self, source: Stream, sink: Stream) -> None:
        while chunk := await source.reader.read(CHUNK):
            await self._pass(chunk, sink)
        sink.writer.write_eof()

    async def _ask(self, body: int) -> None:
        while body:
            chunk = await self._near.reader.read(min(body, CHUNK))
            if not chunk:
                raise RelayEnded("the body of a request was cut short")
            body -= len(chunk)
            await self._pass(chunk, self._far)
        if await self._near.reader.read(1):
            raise RelayEnded("a second request on a connection for one")

    async def _pass(self, chunk: bytes, sink: Stream) -> None:
        if not self._ledger.spend(len(chunk)):
            raise RelayEnded("the volume of the network policy is used up")
        self.passed += len(chunk)
        sink.writer.write(chunk)
        await sink.writer.drain()
        self._patience.reschedule(asyncio.get_running_loop().time() + self._idle)


@contextmanager
def _first_failure() -> Iterator[None]:
    """Of a group: the other direction only failed because its partner did, or in the same way."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
