"""Whether a TLS server wants to hear a second ClientHello, which might name another server than the first. Pure.

Formats: RFC 8446 sections 4.1.3 and 4.1.4. Servers are free to go by the name in the second one.
"""

from __future__ import annotations

from typing import Final

from cenote_worker.egress.client_hello import UnreadableHello

RETRY_RANDOM: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random number of a ServerHello that is a HelloRetryRequest."""

_HANDSHAKE, _SERVER_HELLO = 22, 2
_BEFORE_TYPE, _BEFORE_RANDOM = 5, 5 + 4 + 2
_NEEDED: Final = _BEFORE_RANDOM + len(RETRY_RANDOM)


def asks_again(data: bytes) -> bool | None:
    """True for a HelloRetryRequest; None while more bytes are needed. Raises UnreadableHello.

    data: all bytes of the server so far. An alert, or what is no TLS at all, asks for nothing.
    """
    if data and data[0] != _HANDSHAKE:
        return False
    if len(data) > _BEFORE_TYPE and data[_BEFORE_TYPE] != _SERVER_HELLO:
        return False
    if len(data) < _NEEDED:
        return None
    if _BEFORE_TYPE + int.from_bytes(data[3:5], "big") < _NEEDED:
        raise UnreadableHello("the server's hello is in pieces")
    return data[_BEFORE_RANDOM:_NEEDED] == RETRY_RANDOM
