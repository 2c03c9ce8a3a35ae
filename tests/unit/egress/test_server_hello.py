"""Which answers of a TLS server ask for a second ClientHello."""

from __future__ import annotations

import pytest

from cenote_worker.egress.tls_hello import RETRY_RANDOM, UnreadableHello, asks_again


def server_hello(random: bytes, *, first_record: int = 0) -> bytes:
    body = b"\x03\x03" + random + b"\0\x13\x01\0\0\0"
    message = b"\x02" + len(body).to_bytes(3, "big") + body
    pieces = [message[:first_record], message[first_record:]] if first_record else [message]
    return b"".join(b"\x16\x03\x03" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


@pytest.mark.parametrize(("random", "expected"), [(RETRY_RANDOM, True), (bytes(32), False)])
def test_the_random_number_decides(random: bytes, expected: bool) -> None:
    """It is waited for, byte by byte."""
    answer = server_hello(random)
    assert expected is asks_again(answer)
    assert [None] * 43 == [asks_again(answer[:length]) for length in range(43)]
    assert expected is asks_again(answer[:43])


@pytest.mark.parametrize(
    "answer", [b"\x15\x03\x03\x00\x02\x02\x28", b"HTTP/1.1 400 Bad", b"\x16\x03\x03\0\x04\x0e\0\0\0"]
)
def test_other_answers_ask_for_nothing(answer: bytes) -> None:
    """An alert, no TLS, another message: no handshake follows from any later bytes."""
    assert asks_again(answer) is False


def test_a_random_number_over_two_records() -> None:
    """No server sends such a message; an unclear one is refused."""
    with pytest.raises(UnreadableHello, match="in pieces"):
        asks_again(server_hello(RETRY_RANDOM, first_record=20))
