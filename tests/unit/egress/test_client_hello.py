"""Reading the server name of a TLS client."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.egress.world import hello

from cenote_worker.egress.tls_hello import (
    MAX_HELLO,
    MAX_RECORDS,
    UnreadableHello,
    first_hello,
    second_hello,
)

SAMPLE = hello("files.test")


def server_name(data: bytes) -> str | None:
    found = first_hello(data)
    return None if found is None else found.server_name


def message_of(sample: bytes) -> bytes:
    return sample[5:]


def records(message: bytes, size: int) -> bytes:
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def crafted(*extensions: tuple[int, bytes], trailer: bytes = b"") -> bytes:
    """One record with a ClientHello of these extensions."""
    block = b"".join(
        kind.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body for kind, body in extensions
    )
    body = (
        b"\x03\x03"
        + bytes(32)
        + b"\0"
        + b"\0\x02\x13\x01"
        + b"\x01\0"
        + len(block).to_bytes(2, "big")
        + block
        + trailer
    )
    return records(b"\x01" + len(body).to_bytes(3, "big") + body, 2**14)


def sni(*names: bytes, kind: int = 0) -> tuple[int, bytes]:
    entries = b"".join(bytes([kind]) + len(name).to_bytes(2, "big") + name for name in names)
    return 0, len(entries).to_bytes(2, "big") + entries


@pytest.mark.parametrize(
    "settings",
    [{}, {"maximum_version": ssl.TLSVersion.TLSv1_2}, {"minimum_version": ssl.TLSVersion.TLSv1_3}],
    ids=["any", "1.2", "1.3"],
)
def test_the_name_in_real_hellos(settings: dict[str, object]) -> None:
    """For every TLS version in use."""
    assert "files.test" == server_name(hello("Files.TEST", **settings))


@pytest.mark.parametrize("size", [len(SAMPLE) // (MAX_RECORDS - 1), 100, 2**14])
def test_a_message_over_several_records(size: int) -> None:
    """A filter that reads only the first record does not see this."""
    assert "files.test" == server_name(records(message_of(SAMPLE), size))


def test_arriving_byte_by_byte() -> None:
    """Incomplete is not unreadable."""
    assert [None] * len(SAMPLE) == [server_name(SAMPLE[:length]) for length in range(len(SAMPLE))]
    assert "files.test" == server_name(SAMPLE + b"\x14\x03\x03\x00\x01\x01")


UNREADABLE = {
    "no name": hello(None),
    "plain HTTP": b"GET / HTTP/1.1\r\n",
    "SSH": b"SSH-2.0-x\r\n",
    "SSL 2": b"\x80\x2e\x01\x00\x02",
    "an alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "an empty record": b"\x16\x03\x01\x00\x00",
    "a record that is too long": b"\x16\x03\x01\x40\x01",
    "a ServerHello": b"\x16\x03\x01\x00\x01\x02",
    "a message that is too long": b"\x16\x03\x01\x00\x04\x01" + (MAX_HELLO + 1).to_bytes(3, "big"),
    "too many records": records(message_of(SAMPLE), 8),
    "another message behind": records(message_of(SAMPLE) + b"\x0b\0\0\0", 2**14),
    "two names": crafted(sni(b"files.test", b"evil.test")),
    "the extension twice": crafted(sni(b"files.test"), sni(b"evil.test")),
    "an empty list": crafted(sni()),
    "another kind of name": crafted(sni(b"files.test", kind=1)),
    "a NUL": crafted(sni(b"files.test\0.evil.test")),
    "a dot at the end": crafted(sni(b"files.test.")),
    "an address": crafted(sni(b"127.0.0.1")),
    "letters beyond ASCII": crafted(sni("bücher.test".encode())),
    "an encrypted name": crafted(sni(b"files.test"), (0xFE0D, b"x")),
    "an encrypted name of a draft": crafted(sni(b"files.test"), (0xFFCE, b"x")),
    "bytes behind the extensions": crafted(sni(b"files.test"), trailer=b"x"),
    "bytes in the extension": crafted((0, sni(b"files.test")[1] + b"x")),
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    """It never gives a name."""
    with pytest.raises(UnreadableHello):
        server_name(data)


def test_the_crafted_hello_is_read_but_for_its_flaw() -> None:
    """So the cases above fail for the reason that they name."""
    assert "files.test" == server_name(crafted(sni(b"files.test"), (0xABCD, b"x")))


def test_where_it_ends() -> None:
    """Bytes after it are for the caller to decide on."""
    behind = hello("evil.test")
    for first in (SAMPLE, records(message_of(SAMPLE), 100)):
        found = first_hello(first + behind)
        assert found is not None
        assert (len(first), "files.test") == (found.size, found.server_name)


CHANGE_CIPHER_SPEC = b"\x14\x03\x03\x00\x01\x01"


@pytest.mark.parametrize(
    "before", [b"", CHANGE_CIPHER_SPEC], ids=["at once", "after a record for middleboxes"]
)
def test_a_second_hello(before: bytes) -> None:
    """Incomplete until its last byte, and no longer than itself."""
    whole = before + SAMPLE
    assert [None] * len(whole) == [second_hello(whole[:length]) for length in range(len(whole))]
    found = second_hello(whole + b"more")
    assert found is not None
    assert (len(whole), "files.test") == (found.size, found.server_name)


@pytest.mark.parametrize(
    "data",
    [2 * CHANGE_CIPHER_SPEC + SAMPLE, CHANGE_CIPHER_SPEC[:-1] + b"\2", b"\x17\x03\x03\x00\x01x"],
    ids=["two records before it", "another value", "early data"],
)
def test_no_second_hello(data: bytes) -> None:
    """Other messages in its place are refused."""
    with pytest.raises(UnreadableHello):
        second_hello(data)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, len(SAMPLE)), st.integers(0, 2), st.binary(max_size=3)),
        min_size=1,
        max_size=4,
    )
)
def test_a_changed_hello_gives_a_name_or_is_unreadable(edits: list[tuple[int, int, bytes]]) -> None:
    """For every input the parser fails only in the documented way."""
    changed = bytearray(SAMPLE)
    for at, removed, added in edits:
        changed[at : at + removed] = added
    with contextlib.suppress(UnreadableHello):
        name = server_name(bytes(changed))
        assert name is None or name == name.lower()


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_any_bytes_give_a_name_or_are_unreadable(data: bytes) -> None:
    """With a record's start in front, so that later checks are reached."""
    with contextlib.suppress(UnreadableHello):
        server_name(b"\x16\x03\x01" + len(data).to_bytes(2, "big") + data)
