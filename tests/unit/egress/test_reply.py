"""What a jail gets of a server's answer: all of it, and a notice that the connection ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.egress.http_request import MAX_HEAD
from cenote_worker.egress.relay import Reply

CLOSE = b"Connection: close\r\n"
BODY = b"body\r\n\r\nConnection: keep-alive\r\n"


def whole(answer: bytes) -> bytes:
    reply = Reply()
    return reply.take(answer) + reply.rest()


def test_an_answer_says_that_nothing_follows() -> None:
    """Whatever the server says about its own connection."""
    line = b"HTTP/1.1 200 OK\r\n"
    about = b"connection : a,\r\n\tb\r\nX-Connection: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: a\r\n"
    assert line + CLOSE + b"X-Connection: 1\r\n\r\n" + BODY == whole(line + about + b"\r\n" + BODY)
    assert line + CLOSE + b"\r\n" == whole(line + b"\r\n")
    assert b"HTTP/1.0 404\n" + CLOSE + b"A: b\n\nx" == whole(b"HTTP/1.0 404\nA: b\n\nx")


def test_interim_answers_pass_at_once() -> None:
    """A client may wait for an interim answer before it sends its body."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    reply = Reply()
    assert interim == reply.take(interim)
    assert interim == reply.take(interim + b"HTT")
    assert b"HTTP/1.1 200\r\n" + CLOSE + b"\r\n" == reply.take(b"P/1.1 200\r\n\r\n")
    assert interim == reply.take(interim)


@pytest.mark.parametrize(
    "answer",
    [b"", b"H", b"<html>\n\nold", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 200 OK\r\nNo: end\r\n", b"\r\n\r\n"],
)
def test_what_cannot_be_read_passes_as_it_is(answer: bytes) -> None:
    assert answer == whole(answer)


def test_a_head_without_an_end() -> None:
    """It is waited for no longer than a request's head."""
    reply, endless = Reply(), b"HTTP/1.1 200 OK\r\nA: " + b"a" * MAX_HEAD
    assert b"" == reply.take(endless[:MAX_HEAD])
    assert endless == reply.take(endless[MAX_HEAD:])
    assert b"\r\n\r\n" == reply.take(b"\r\n\r\n")


PIECES = st.lists(
    st.sampled_from(
        [
            b"HTTP/1.1 ",
            b"100 a",
            b"200 b",
            b"\r\n",
            b"\n",
            b"\r\n\r\n",
            b"Connection: keep-alive",
            b"A: b",
            b" ",
            b"x",
        ]
    )
)


@given(PIECES)
def test_how_it_comes_makes_no_difference(pieces: list[bytes]) -> None:
    """In one piece, or in pieces of which none shows where an answer's head ends."""
    reply = Reply()
    got = b"".join(map(reply.take, (bytes([each]) for each in b"".join(pieces)))) + reply.rest()
    assert whole(b"".join(pieces)) == got
