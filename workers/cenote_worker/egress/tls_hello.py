"""Reads the first messages of a TLS connection. Pure and bounded; a message that cannot be read is refused.

The server name comes from the ClientHello (RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3), which may be
spread over several records. A server may request a second ClientHello (RFC 8446 sections 4.1.3 and 4.1.4), which
could name another server than the first; servers may use the name in the second one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cenote_security.network import host_name

MAX_HELLO: Final = 16 * 2**10
"""Bytes of the message. Hybrid key shares make some 2 KiB; nothing known comes near this."""

MAX_RECORDS: Final = 16
"""Records that one message may be spread over; so reading again after each arrival stays cheap."""

MAX_BYTES: Final = MAX_HELLO + 5 * MAX_RECORDS

_HANDSHAKE, _CLIENT_HELLO, _HOST_NAME = 22, 1, 0
_CHANGE_CIPHER_SPEC: Final = b"\x14\x03\x03\x00\x01\x01"
_SERVER_NAME: Final = 0
# RFC 9849 and its drafts: the visible name is then not the requested one.
_HIDDEN_NAMES: Final = frozenset({0xFE0D, 0xFFCE})


class UnreadableHello(Exception):
    """What arrived is not a ClientHello that shows one server name. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHello:
    """server_name: in lower case. size: bytes of the records that the message came in."""

    server_name: str
    size: int


def first_hello(data: bytes) -> ClientHello | None:
    """The first hello of a client; None while more bytes are needed. Raises UnreadableHello.

    data: all bytes of the client so far. Later records are ignored.
    """
    found = _message(data)
    if found is None:
        return None
    message, size = found
    return ClientHello(server_name=_name_in(message), size=size)


def second_hello(data: bytes) -> ClientHello | None:
    """The same for the hello that a client sends when the server requests another one: a record for old middleboxes
    may come before it. data: all bytes after the first one.
    """
    if len(data) < len(_CHANGE_CIPHER_SPEC) and _CHANGE_CIPHER_SPEC.startswith(data):
        return None
    rest = data.removeprefix(_CHANGE_CIPHER_SPEC)
    hello = first_hello(rest)
    if hello is None:
        return None
    return ClientHello(server_name=hello.server_name, size=len(data) - len(rest) + hello.size)


def _message(data: bytes) -> tuple[bytes, int] | None:
    """The ClientHello's body, joined from records, and how many bytes these have."""
    joined = bytearray()
    rest = memoryview(data)
    for _ in range(MAX_RECORDS):
        _check_record_start(rest)
        length = int.from_bytes(rest[3:5], "big") if len(rest) >= 5 else 0
        if len(rest) < 5 + length or not length:
            return None
        joined += rest[5 : 5 + length]
        rest = rest[5 + length :]
        if (wanted := _wanted(joined)) is not None and len(joined) >= wanted:
            if len(joined) > wanted:
                raise UnreadableHello("another message in the record of the ClientHello")
            return bytes(joined[4:]), len(data) - len(rest)
    raise UnreadableHello("a ClientHello in too many records")


def _check_record_start(record: memoryview) -> None:
    """Checks a record's header, as far as it has come."""
    if len(record) > 0 and record[0] != _HANDSHAKE:
        raise UnreadableHello("no TLS handshake")
    if len(record) > 1 and record[1] != 3:
        raise UnreadableHello("not a version of TLS")
    if len(record) >= 5 and not 0 < int.from_bytes(record[3:5], "big") <= 2**14:
        raise UnreadableHello("a TLS record of a length that does not exist")


def _wanted(joined: bytearray) -> int | None:
    """Length of the message, header included; None while it is not known."""
    if joined[0] != _CLIENT_HELLO:
        raise UnreadableHello("a handshake that begins with something else than a ClientHello")
    if len(joined) < 4:
        return None
    length = 4 + int.from_bytes(joined[1:4], "big")
    if length > MAX_HELLO:
        raise UnreadableHello("a ClientHello that is too long")
    return length


def _name_in(message: bytes) -> str:
    fields = _Fields(message)
    fields.take(2 + 32)
    fields.vector(1)
    fields.vector(2)
    fields.vector(1)
    extensions = _Fields(fields.vector(2))
    fields.end()
    found: dict[int, bytes] = {}
    while not extensions.empty:
        kind = extensions.number(2)
        if kind in found:
            raise UnreadableHello("an extension twice")
        found[kind] = extensions.vector(2)
    if _HIDDEN_NAMES & found.keys():
        raise UnreadableHello("an encrypted server name")
    if _SERVER_NAME not in found:
        raise UnreadableHello("no server name")
    return _only_name(found[_SERVER_NAME])


def _only_name(extension: bytes) -> str:
    fields = _Fields(extension)
    names = _Fields(fields.vector(2))
    fields.end()
    kind, name = names.number(1), names.vector(2)
    names.end()
    text = host_name(name.decode("latin-1")) if kind == _HOST_NAME else None
    if text is None:
        raise UnreadableHello("a server name that is not one")
    return text


class _Fields:
    """Takes numbers and length-prefixed vectors from the front of bytes; running short is unreadable."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def empty(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise UnreadableHello("a ClientHello that is cut short inside")
        taken, self._at = self._data[self._at : end], end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    def end(self) -> None:
        if not self.empty:
            raise UnreadableHello("bytes after the end of a field")


RETRY_RANDOM: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random number of a ServerHello that is a HelloRetryRequest."""

_HANDSHAKE_RECORD, _SERVER_HELLO = 22, 2
_BEFORE_TYPE, _BEFORE_RANDOM = 5, 5 + 4 + 2
_NEEDED: Final = _BEFORE_RANDOM + len(RETRY_RANDOM)


def asks_again(data: bytes) -> bool | None:
    """True for a HelloRetryRequest; None while more bytes are needed. Raises UnreadableHello.

    data: all bytes of the server so far. An alert, or what is no TLS at all, asks for nothing.
    """
    if data and data[0] != _HANDSHAKE_RECORD:
        return False
    if len(data) > _BEFORE_TYPE and data[_BEFORE_TYPE] != _SERVER_HELLO:
        return False
    if len(data) < _NEEDED:
        return None
    if _BEFORE_TYPE + int.from_bytes(data[3:5], "big") < _NEEDED:
        raise UnreadableHello("the server's hello is in pieces")
    return data[_BEFORE_RANDOM:_NEEDED] == RETRY_RANDOM
