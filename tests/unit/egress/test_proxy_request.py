"""Reading requests to the proxy."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_worker.egress.http_request import MAX_HEAD, HttpRefusal, Plain, Tunnel, parse


def head(first: str, *headers: str) -> bytes:
    return "\r\n".join((first, *headers, "", "")).encode("latin-1")


def get(url: str, host: str, *headers: str, method: str = "GET") -> bytes:
    return head(f"{method} {url} HTTP/1.1", f"Host: {host}", *headers)


def test_a_tunnel() -> None:
    """Names are compared in lower case; the Host header may be missing or must agree."""
    assert Tunnel(host="a.com", port=443) == parse(head("CONNECT A.com:443 HTTP/1.1"))
    assert Tunnel(host="a.com", port=443) == parse(head("CONNECT a.com:443 HTTP/1.0", "Host: a.COM:443"))
    assert Tunnel(host="a.com", port=8443) == parse(head("CONNECT a.com:8443 HTTP/1.1", "Host: a.com"))


def test_a_plain_request_is_passed_on_in_origin_form() -> None:
    """One Host header, made from the target; headers between client and proxy are removed; the server must close."""
    request = parse(
        get(
            "http://a.com:8080?q=1",
            "a.com:8080",
            "X: 1",
            "Proxy-Connection: keep-alive",
            "Connection: TE, close",
            "TE: x",
        )
    )
    expected = b"GET /?q=1 HTTP/1.1\r\nHost: a.com:8080\r\nX: 1\r\nConnection: close\r\n\r\n"
    assert Plain(host="a.com", port=8080, head=expected, body=0) == request


def test_a_declared_body() -> None:
    """Its length is known before a byte is passed."""
    request = parse(get("http://a.com/", "a.com", "Content-Length: 12", method="POST"))
    assert isinstance(request, Plain)
    assert (80, 12) == (request.port, request.body)


HOSTS = ["127.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "0x7f.1", "0x7f000001", "2130706433",
         "127.1", "0177.0.0.1", "localhost", "a.com.", "a..com", "a%00.com", "a.com%2eevil.com", "user@a.com",
         "a.com@evil.com", "a_b.com", "xn--.", "*.a.com", "a.com\\", "a.com#"]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS, ids=[host.replace("0x", "hex ") for host in HOSTS])
def test_only_names_are_reached(host: str) -> None:
    """Addresses in every notation and ambiguous names are refused, tunnelled or not."""
    with pytest.raises(HttpRefusal):
        parse(head(f"CONNECT {host}:443 HTTP/1.1"))
    with pytest.raises(HttpRefusal):
        parse(get(f"http://{host}/", host))


SMUGGLED = {
    "two lengths": get("http://a.com/", "a.com", "Content-Length: 1", "Content-Length: 2"),
    "two equal lengths": get("http://a.com/", "a.com", "Content-Length: 1", "content-length: 1"),
    "a list of lengths": get("http://a.com/", "a.com", "Content-Length: 1, 1"),
    "a signed length": get("http://a.com/", "a.com", "Content-Length: +1"),
    "a hexadecimal length": get("http://a.com/", "a.com", "Content-Length: 0x1"),
    "a huge length": get("http://a.com/", "a.com", "Content-Length: 99999999999999999"),
    "an empty length": get("http://a.com/", "a.com", "Content-Length:"),
    "chunks": get("http://a.com/", "a.com", "Transfer-Encoding: chunked"),
    "chunks and a length": get("http://a.com/", "a.com", "Content-Length: 1", "Transfer-Encoding: chunked"),
    "odd chunks": get("http://a.com/", "a.com", "Transfer-Encoding: xchunked"),
    "a space before the colon": get("http://a.com/", "a.com", "Content-Length : 1"),
    "a folded line": get("http://a.com/", "a.com", "X: 1", " Content-Length: 1"),
    "a bare line feed": get("http://a.com/", "a.com", "X: 1\nContent-Length: 1"),
    "a bare carriage return": get("http://a.com/", "a.com", "X: 1\rContent-Length: 1"),
    "a NUL": get("http://a.com/", "a.com", "X: \0"),
    "another Host": get("http://a.com/", "b.com"),
    "another port": get("http://a.com/", "a.com:81"),
    "two Hosts": get("http://a.com/", "a.com", "Host: a.com"),
    "no Host": head("GET http://a.com/ HTTP/1.1"),
    "Connection: Host": get("http://a.com/", "a.com", "Connection: close, Host"),
    "Connection: Content-Length": get("http://a.com/", "a.com", "Connection: content-length", "Content-Length: 1"),
    "a tunnel with a body": head("CONNECT a.com:443 HTTP/1.1", "Content-Length: 1"),
    "a tunnel to another Host": head("CONNECT a.com:443 HTTP/1.1", "Host: b.com"),
    "a tunnel without a port": head("CONNECT a.com HTTP/1.1"),
    "a tunnel to a URL": head("CONNECT http://a.com:443 HTTP/1.1"),
    "origin form": get("/", "a.com"),
    "another scheme": get("ftp://a.com/", "a.com"),
    "https in the open": get("https://a.com/", "a.com"),
    "a fragment": get("http://a.com/#x", "a.com"),
    "a space in the target": get("http://a.com/ x", "a.com"),
    "TRACE": get("http://a.com/", "a.com", method="TRACE"),
    "HTTP/2": head("PRI * HTTP/2.0"),
    "nothing": b"\r\n\r\n",
    "no end": b"GET http://a.com/ HTTP/1.1\r\nHost: a.com\r\n",
    "too long": get("http://a.com/", "a.com", "X: " + "x" * MAX_HEAD),
}  # fmt: skip


@pytest.mark.parametrize("request_head", SMUGGLED.values(), ids=SMUGGLED.keys())
def test_what_has_two_readings_is_refused(request_head: bytes) -> None:
    """CWE-444, request smuggling: two parsers must not be able to disagree about host or length."""
    with pytest.raises(HttpRefusal):
        parse(request_head)


def test_the_longest_head() -> None:
    """Exactly the limit is read."""
    padding = MAX_HEAD - len(get("http://a.com/", "a.com", "X: "))
    assert isinstance(parse(get("http://a.com/", "a.com", "X: " + "x" * padding)), Plain)


@settings(max_examples=150)
@given(
    st.sampled_from([*SMUGGLED.values(), get("http://a.com/", "a.com", "Content-Length: 3")]),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3), st.binary(max_size=3)), max_size=4),
)
def test_a_changed_request_is_read_or_refused(sample: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    """For any mutation, the outcome is a request with one Host and no stray control byte, or Refused."""
    changed = bytearray(sample[:500])
    for at, removed, added in edits:
        changed[at : at + removed] = added
    with contextlib.suppress(HttpRefusal):
        request = parse(bytes(changed))
        assert request.host.isascii()
        if isinstance(request, Plain):
            first, *lines = request.head[:-4].split(b"\r\n")
            assert 1 == sum(line.lower().startswith(b"host:") for line in lines)
            assert not set(request.head.replace(b"\r\n", b"")) & {0, 10, 13}
            assert first.split(b" ")[1].startswith(b"/")


def test_an_answer_says_why_in_its_status_line() -> None:
    """Clients show only this of a refused tunnel."""
    assert HttpRefusal(403, "not here").answer().startswith(b"HTTP/1.1 403 not here\r\n")
    assert HttpRefusal(403, "not here").answer().endswith(b"\r\n\r\nnot here\n")


def test_what_the_log_and_the_answer_say_of_a_request_is_one_line_of_ascii() -> None:
    """A header may hold bytes that some terminals take for commands and some readers for line ends."""
    with pytest.raises(HttpRefusal) as refused:
        parse(get("http://a.com/", "\x9b2J\x85\tcenote.egress: allowed"))
    assert r"\x9b2J\x85\tcenote.egress: allowed is not a name" in refused.value.reason
    assert refused.value.reason.isascii()
    assert refused.value.reason.isprintable()
