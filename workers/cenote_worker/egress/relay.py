"""Copies bytes between a jail and a server, through small buffers: a slow reader slows down the writer.

A server's answer to a plain request passes with a `Connection: close` header, as RFC 9112 section 9.6 requires of a
side that closes; without it a client would send its next request on the closing connection. `Reply` is lenient: only
the client interprets an answer, so bytes that are not HTTP/1 pass unchanged.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from cenote_worker.egress.http_request import MAX_HEAD
from cenote_worker.egress.ledger import EgressLedger
from cenote_worker.egress.tls_hello import asks_again

_PROTOCOL: Final = b"HTTP/1."
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_INTERIM: Final = re.compile(rb"HTTP/1\.[01] 1[0-9][0-9]\b")
_ABOUT_THE_CONNECTION: Final = re.compile(
    rb"^(?:connection|keep-alive|proxy-connection)[ \t]*:.*\n(?:[ \t].*\n)*", re.IGNORECASE | re.MULTILINE
)

_LEAST_MASKED: Final = 8
"""Characters of a credential, or a word in it. Shorter scheme names, such as `Bearer`, may occur in any answer."""


class Reply:
    """Converts the server's bytes to those for the jail."""

    def __init__(self) -> None:
        self._seen = b""
        """The bytes of an incomplete head."""
        self._begun = False
        """Whether the final head has passed."""

    def take(self, chunk: bytes) -> bytes:
        """The bytes that may pass now."""
        if self._begun:
            return chunk
        self._seen += chunk
        passed = b""
        while (end := _END_OF_HEAD.search(self._seen)) and _INTERIM.match(self._seen):
            passed += self._seen[: end.end()]
            self._seen = self._seen[end.end() :]
        if end is None and len(self._seen) <= MAX_HEAD and _may_be_http(self._seen):
            return passed
        self._begun = True
        return passed + (self._final(end.end()) if end and _may_be_http(self._seen) else self.rest())

    def rest(self) -> bytes:
        """The bytes of an incomplete head, when the stream has ended."""
        rest, self._seen = self._seen, b""
        return rest

    def _final(self, end: int) -> bytes:
        seen = self.rest()
        status, line_end, lines = seen[:end].partition(b"\n")
        return (
            status + line_end + b"Connection: close\r\n" + _ABOUT_THE_CONNECTION.sub(b"", lines) + seen[end:]
        )


def _may_be_http(seen: bytes) -> bool:
    return seen.startswith(_PROTOCOL) or _PROTOCOL.startswith(seen)


class Mask:
    """Replaces a credential that a server echoes by stars: a help against echoes, not a security boundary.

    The length stays the same, so that the answer's framing holds. An encoded credential is not found.
    """

    def __init__(self, value: str) -> None:
        words = {word for word in (value, *value.split(" ")) if len(word) >= _LEAST_MASKED}
        self._needles = [word.encode() for word in sorted(words, key=len, reverse=True)]
        self._pattern = re.compile(b"|".join(map(re.escape, self._needles)))
        self._held = b""
        """The last bytes received, which may be the beginning of a needle."""

    def take(self, chunk: bytes) -> bytes:
        """The bytes that may pass now."""
        if not self._needles:
            return chunk
        seen = self._pattern.sub(lambda found: b"*" * len(found[0]), self._held + chunk)
        held = self._begun(seen)
        self._held = seen[len(seen) - held :]
        return seen[: len(seen) - held]

    def rest(self) -> bytes:
        """The held bytes, when the stream has ended."""
        rest, self._held = self._held, b""
        return rest

    def _begun(self, seen: bytes) -> int:
        """The number of bytes at the end that may be the beginning of a needle."""
        longest = min(len(seen), len(self._needles[0]) - 1)
        return next(
            (
                size
                for size in range(longest, 0, -1)
                if any(each.startswith(seen[-size:]) for each in self._needles)
            ),
            0,
        )


CHUNK = 64 * 2**10
"""Bytes in hand per direction. Twice as much may wait in each of a connection's four buffers."""


KERNEL_BUFFER = 512 * 2**10
"""Bytes that the kernel buffers of a side that sends while the other does not read. The default is six mebibytes per
connection; this much still fills a link of 40 Mbit/s at 100 ms."""


HearAgain = Callable[[bytes], Awaitable[tuple[bytes, bytes]]]
"""Given the bytes after a first hello, gives a second hello and the bytes after it."""


class Side(Protocol):
    """One of the two sides of a Relay."""

    async def read(self, most: int) -> bytes:
        """Available bytes, at least one; empty at the end."""
        ...

    async def send(self, chunk: bytes) -> None:
        """Returns when there is room for more."""
        ...

    def end(self) -> None:
        """Ends the sending direction."""
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
        if self.writer.can_write_eof():  # TLS cannot close one direction only
            self.writer.write_eof()

    def abort(self) -> None:
        """Closes at once; unsent bytes are lost."""
        self.writer.transport.abort()


class RelayEnded(Exception):
    """Nothing more may pass; the text says why."""


class Relay:
    """One exchange between two sides. Ends when both end, when nothing moves for `idle` seconds, or by RelayEnded."""

    def __init__(self, near: Side, far: Side, ledger: EgressLedger, idle: float) -> None:
        self._near = near
        self._far = far
        self._ledger = ledger
        self._idle = idle
        self._patience = asyncio.timeout(idle)
        self.passed = 0
        """Bytes, both ways, so far."""

    async def tunnel(self, hello: bytes, behind: bytes, again: HearAgain) -> None:
        """Relays everything, both ways, once the server has answered the hello and requests no other.

        behind: bytes that the jail has sent after it. They do not pass before the server's answer: they could be a
        second hello, which the server has not requested yet. again: reads that one when it is requested.
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
        """Relays the first bytes of the server. True when they request another hello."""
        answer = b""
        while (retry := asks_again(answer)) is None:
            chunk = await self._far.read(CHUNK)
            if not chunk:
                break
            answer += chunk
        await self._pass(answer, self._near)
        return retry is True

    async def request(self, head: bytes, body: int, mask: Mask | None = None) -> None:
        """Relays one request, with a body of so many bytes, and the whole answer. mask: for the answer."""
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
    """Raises a group's first failure: the other direction failed because of it, or in the same way."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyTimeouts:
    """Seconds. head, hello: until a request or ClientHello is complete. dial: for the lookup of a name and the

    connection. idle: without a byte in either direction.
    """

    head: float = 10.0
    hello: float = 10.0
    dial: float = 20.0
    idle: float = 120.0


PROXY_TIMEOUTS = ProxyTimeouts()
