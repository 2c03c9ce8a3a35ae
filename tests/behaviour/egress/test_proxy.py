"""The proxy as a hostile client sees it: real sockets, real servers, a simulated internet on loopback."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import struct
import time
from dataclasses import replace

import pytest
from tests.support.egress.fixtures import OpenDoor
from tests.support.egress.world import AUTHORITY, LONG, Door, Sink, Site, World, hello, read_all, read_head
from tests.waiting import PATIENCE, until

from cenote.gateway.process.logs import JsonFormatter
from cenote_worker.egress.connection_rate import BURST_SECONDS, ConnectionRate
from cenote_worker.egress.ledger import Decision, EgressLedger
from cenote_worker.process.log_context import log_context

UNRECOGNIZED_NAME = b"\x15\x03\x03\x00\x02\x02\x70"
HASTY = replace(LONG, idle=0.5)
"""For tunnels that are idle: the proxy closes them soon, so that the test ends."""

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def connect_request(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode()


def get_request(host: str, port: int, path: str = "/") -> bytes:
    return f"GET http://{host}:{port}{path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()


def status_line(answer: bytes) -> str:
    return answer.partition(b"\r\n")[0].decode()


def tunnel(door: Door, host: str, port: int) -> socket.socket:
    """A connection whose tunnel was accepted."""
    sock = door.connect()
    sock.sendall(connect_request(host, port))
    assert ESTABLISHED == read_head(sock)
    return sock


# -- what is allowed ----------------------------------------------------------------------------------------


def test_tls_through_a_tunnel(open_door: OpenDoor, tls_site: Site) -> None:
    """The handshake is with the server: the client checks its certificate, not the proxy."""
    door = open_door(f"files.test:{tls_site.port}")
    context = ssl.create_default_context(cafile=str(AUTHORITY))
    with context.wrap_socket(tunnel(door, "files.test", tls_site.port), server_hostname="files.test") as sock:
        sock.sendall(b"GET /x HTTP/1.1\r\nHost: files.test\r\nConnection: close\r\n\r\n")
        assert read_all(sock).endswith(b"got ")
    decision = door.ledger.decisions[0]
    assert ("tunnel", "files.test", tls_site.port) == (decision.kind, decision.host, decision.port)
    assert (True, "127.0.0.1", "") == (decision.allowed, decision.address, decision.reason)


def test_a_hello_that_comes_with_the_request(open_door: OpenDoor, sink: Sink) -> None:
    """Bytes after the request are the first of the tunnel: checked like any others, then passed on unchanged."""
    door = open_door(f"files.test:{sink.port}", patience=HASTY)
    sample = hello("files.test")
    with door.connect() as sock:
        sock.sendall(connect_request("files.test", sink.port) + sample)
        assert ESTABLISHED == read_head(sock)
        until(lambda: [sample] == [bytes(got) for got in sink.connections])


def test_a_plain_request_with_a_body(open_door: OpenDoor, plain_site: Site) -> None:
    """The server's answer is unchanged, except that it says that the connection ends with it."""
    door = open_door(f"files.test:{plain_site.port}")
    head = f"POST http://files.test:{plain_site.port}/p HTTP/1.1\r\nHost: files.test:{plain_site.port}\r\n"
    answer = door.ask(head.encode() + b"Content-Length: 4\r\n\r\nbody")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"got body")
    assert b"\r\nConnection: close\r\n" in answer


def test_a_large_answer_and_a_slow_reader(open_door: OpenDoor, plain_site: Site) -> None:
    """A reader that pauses slows the server down, and loses nothing."""
    plain_site.pages["/large"] = b"x" * 8_000_000
    door = open_door(f"files.test:{plain_site.port}")
    with door.connect() as sock:
        sock.sendall(get_request("files.test", plain_site.port, "/large"))
        assert b"200" in read_head(sock)
        until(lambda: len(door.ledger.decisions) == 1)
        assert 8_000_000 == len(read_all(sock))


def test_a_redirect_is_the_clients_to_follow(open_door: OpenDoor, plain_site: Site) -> None:
    """The proxy returns it; following it would reach an unchecked name."""
    door = open_door(f"files.test:{plain_site.port}")
    answer = door.ask(get_request("files.test", plain_site.port, "/to/http://169.254.169.254/"))
    assert "HTTP/1.1 302 Found" == status_line(answer)
    assert b"Location: http://169.254.169.254/" in answer
    assert 1 == len(door.ledger.decisions)


# -- names and addresses --------------------------------------------------------------------------------------


def test_what_is_not_listed_is_not_looked_up(open_door: OpenDoor, world: World, sink: Sink) -> None:
    """DNS tunnelling (T1071.004): a name that is not allowed must not reach a resolver, whatever it encodes."""
    door = open_door(f"files.test:{sink.port}")
    for request in (
        connect_request("secret-data.evil.test", sink.port),
        get_request("secret-data.evil.test", sink.port),
        connect_request("files.test", sink.port + 1),
        connect_request("files.test.evil.test", sink.port),
    ):
        assert "is not on the allow-list" in status_line(door.ask(request))
    assert ([], []) == (world.asked, sink.connections)


@pytest.mark.parametrize(
    "addresses",
    [["10.0.0.1"], ["169.254.169.254"], ["::1"], ["::ffff:127.0.0.1"], ["127.0.0.2", "0.0.0.0"], []],
)
def test_a_listed_name_with_a_private_address(
    open_door: OpenDoor, world: World, sink: Sink, addresses: list[str]
) -> None:
    """Forged requests to the metadata service (CWE-918): a listed name does not permit its private address."""
    world.names["files.test"] = [addresses]
    door = open_door(f"files.test:{sink.port}")
    answer = door.ask(connect_request("files.test", sink.port))
    assert "HTTP/1.1 403 files.test stands for no public address" == status_line(answer)


def test_rebinding(open_door: OpenDoor, world: World, sink: Sink) -> None:
    """DNS rebinding: a name is looked up once per request, and the checked address is the one that is dialled."""
    world.permitted = ("127.0.0.1",)
    world.names["files.test"] = [["127.0.0.1"], ["127.0.0.99"]]
    door = open_door(f"files.test:{sink.port}")
    with tunnel(door, "files.test", sink.port):
        assert ["files.test"] == world.asked
    until(lambda: len(sink.connections) == 1)
    assert "stands for no public" in status_line(door.ask(connect_request("files.test", sink.port)))


def test_of_several_addresses_only_permitted_ones_are_dialled(
    open_door: OpenDoor, world: World, sink: Sink
) -> None:
    """A private address among public ones is skipped; one that does not answer leads to the next."""
    world.permitted = ("127.0.0.1", "127.0.0.3")
    world.names["files.test"] = [["10.0.0.1", "127.0.0.3", "127.0.0.1"]]
    door = open_door(f"files.test:{sink.port}", patience=HASTY)
    with tunnel(door, "files.test", sink.port) as sock:
        sock.sendall(hello("files.test"))
        until(lambda: ["127.0.0.1"] == [decision.address for decision in door.ledger.decisions])


def test_a_name_that_does_not_exist_and_a_server_that_does_not_answer(
    open_door: OpenDoor, world: World, sink: Sink
) -> None:
    """The jail sees the difference only in the error's name."""
    world.names["closed.test"] = [["127.0.0.1"]]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    door = open_door("no.such.name", f"closed.test:{port}")
    assert "HTTP/1.1 502" in status_line(door.ask(connect_request("no.such.name", 443)))
    assert "ConnectionRefusedError" in status_line(door.ask(connect_request("closed.test", port)))


# -- tunnels with false names -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (hello("evil.test"), "it names evil.test"),
        (hello(None), "no server name"),
        (b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "no TLS handshake"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "no TLS handshake"),
    ],
    ids=["another name", "no name", "http", "ssh"],
)
def test_a_tunnel_must_name_its_server(open_door: OpenDoor, sink: Sink, first: bytes, reason: str) -> None:
    """A false SNI, or none: no byte of it reaches the server; the client gets TLS's own alert."""
    door = open_door(f"files.test:{sink.port}")
    with tunnel(door, "files.test", sink.port) as sock:
        sock.sendall(first)
        assert UNRECOGNIZED_NAME == read_all(sock)
    sink.await_end()
    assert [b""] == [bytes(got) for got in sink.connections]
    assert [f"the handshake does not show this name: {reason}"] == door.reasons


def test_a_tunnel_must_name_its_server_in_time(open_door: OpenDoor, sink: Sink) -> None:
    """A hello without its last byte. It comes with the request: its time begins with the tunnel."""
    door = open_door(f"files.test:{sink.port}", patience=replace(LONG, hello=0.5))
    answer = door.ask(connect_request("files.test", sink.port) + hello("files.test")[:-1])
    assert ESTABLISHED + UNRECOGNIZED_NAME == answer
    sink.await_end()
    assert [b""] == [bytes(got) for got in sink.connections]
    assert ["the handshake does not show this name: it took too long"] == door.reasons


# -- a server that asks for a second hello --------------------------------------------------------------------


def test_tls_with_a_second_hello(open_door: OpenDoor, retrying_site: Site) -> None:
    """RFC 8446's HelloRetryRequest is normal between a client and a server with different preferences."""
    door = open_door(f"files.test:{retrying_site.port}")
    context = ssl.create_default_context(cafile=str(AUTHORITY))
    raw = tunnel(door, "files.test", retrying_site.port)
    with context.wrap_socket(raw, server_hostname="files.test") as sock:
        sock.sendall(b"GET /x HTTP/1.1\r\nHost: files.test\r\nConnection: close\r\n\r\n")
        assert read_all(sock).endswith(b"got ")
    until(lambda: [""] == door.reasons)


def say_next(client: ssl.SSLObject) -> None:
    """As far as possible with the server's messages so far."""
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()


def test_a_second_hello_with_another_name(open_door: OpenDoor, retrying_site: Site) -> None:
    """The first names the listed server; the second, which the server uses, names another one at the same address."""
    door = open_door(f"files.test:{retrying_site.port}")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(AUTHORITY))
    client = context.wrap_bio(incoming, outgoing, server_hostname="files.test")
    with tunnel(door, "files.test", retrying_site.port) as sock:
        for changed in (b"files.test", b"other.test"):
            say_next(client)
            while not outgoing.pending:  # the server's request may come in pieces
                incoming.write(sock.recv(65536))
                say_next(client)
            sock.sendall(outgoing.read().replace(b"files.test", changed))
        assert read_all(sock).endswith(UNRECOGNIZED_NAME)
    until(lambda: ["", "the handshake does not show this name: it names other.test"] == door.reasons)


def test_a_second_hello_that_nobody_has_asked_for_yet(open_door: OpenDoor, retrying_site: Site) -> None:
    """Sent with the first, it would arrive before the server's request for it is seen."""
    door = open_door(f"files.test:{retrying_site.port}")
    with tunnel(door, "files.test", retrying_site.port) as sock:
        sock.sendall(hello("files.test") + hello("other.test"))
        assert read_all(sock).endswith(UNRECOGNIZED_NAME)
    assert "the handshake does not show this name: it names other.test" == door.reasons[1]


def test_a_server_that_answers_nothing(open_door: OpenDoor, sink: Sink) -> None:
    """No bytes after the hello reach it; the tunnel ends when it is idle."""
    door = open_door(f"files.test:{sink.port}", patience=HASTY)
    with tunnel(door, "files.test", sink.port) as sock:
        sock.sendall(hello("files.test") + b"\x14\x03\x03\x00\x01\x01")
        assert b"" == read_all(sock)
    sink.await_end()
    assert [hello("files.test")[:5]] == [bytes(got[:5]) for got in sink.connections]
    assert not sink.connections[0].endswith(b"\x00\x01\x01")


# -- plain requests that hide another -------------------------------------------------------------------------


def test_a_second_request_is_not_passed_on(open_door: OpenDoor, sink: Sink) -> None:
    """Pipelining to another host: the second request would use the first one's decision."""
    door = open_door(f"files.test:{sink.port}")
    first = get_request("files.test", sink.port)
    with door.connect() as sock:
        sock.sendall(first + get_request("evil.test", sink.port))
        assert b"" == read_all(sock)
    until(lambda: ["", "a second request on a connection for one"] == door.reasons)
    sink.await_end()
    assert [first.split()[0]] == [got.split()[0] for got in sink.connections]
    assert b"evil.test" not in sink.connections[0]


def test_no_more_than_the_declared_body_is_passed_on(open_door: OpenDoor, sink: Sink) -> None:
    """Request smuggling by length (CL.TE and variants): the server reads exactly what the proxy counted."""
    door = open_door(f"files.test:{sink.port}")
    name = f"files.test:{sink.port}"
    head = f"POST http://{name}/ HTTP/1.1\r\nHost: {name}\r\nContent-Length: 3\r\n\r\n"
    with door.connect() as sock:
        sock.sendall(head.encode() + b"abcGET /hidden HTTP/1.1\r\nHost: evil.test\r\n\r\n")
        assert b"" == read_all(sock)
    sink.await_end()
    assert sink.connections[0].endswith(b"\r\n\r\nabc")


@pytest.mark.parametrize(
    "line", ["Transfer-Encoding: chunked", "Content-Length: 3\r\nTransfer-Encoding: chunked"]
)
def test_chunks_are_refused(open_door: OpenDoor, sink: Sink, line: str) -> None:
    """A body whose end is known only from its content is never passed on."""
    door = open_door(f"files.test:{sink.port}")
    head = f"POST http://files.test:{sink.port}/ HTTP/1.1\r\nHost: files.test:{sink.port}\r\n{line}\r\n\r\n"
    assert "HTTP/1.1 411" in status_line(door.ask(head.encode() + b"0\r\n\r\n"))
    assert [] == sink.connections


# -- floods and the slow --------------------------------------------------------------------------------------


def test_slow_requests_end(open_door: OpenDoor) -> None:
    """Slowloris: a head that grows without end is closed after a fixed time, not after a pause."""
    door = open_door("files.test", patience=replace(LONG, head=0.3))
    with door.connect() as sock:
        sock.sendall(b"GET http://files.test/ HTTP/1.1\r\n")
        sock.settimeout(0.05)
        with pytest.raises(OSError, match=r"ended|[Pp]ipe|reset"):  # noqa: PT012
            while True:
                sock.sendall(b"X: 1\r\n")
                try:
                    if not sock.recv(1000):
                        raise ConnectionError("ended")
                except TimeoutError:
                    continue
    until(lambda: ["the head of the request took too long"] == door.reasons)


def test_idle_tunnels_end(open_door: OpenDoor, sink: Sink) -> None:
    """An idle tunnel is closed."""
    door = open_door(f"files.test:{sink.port}", patience=HASTY)
    with tunnel(door, "files.test", sink.port) as sock:
        sock.sendall(hello("files.test"))
        assert b"" == read_all(sock)


def test_an_endless_head(open_door: OpenDoor) -> None:
    """Only as much as a head may have is kept in memory."""
    door = open_door("files.test")
    assert "HTTP/1.1 431" in status_line(door.ask(b"GET http://files.test/ HTTP/1.1\r\n" + b"x" * 70_000))


def test_connections_at_once_are_limited(open_door: OpenDoor, sink: Sink) -> None:
    """Connections beyond the limit wait, and are served when another ends."""
    door = open_door(f"files.test:{sink.port}", connections=2, rate=1000)
    silent = [door.connect() for _ in range(2)]
    with door.connect() as third:
        third.sendall(connect_request("evil.test", 443))
        third.settimeout(0.3)
        with pytest.raises(TimeoutError):
            third.recv(1)
        silent.pop().close()
        third.settimeout(PATIENCE)
        assert b"403" in read_head(third)
    silent.pop().close()


def test_a_hundred_connections_at_once(open_door: OpenDoor, plain_site: Site) -> None:
    """Each is served while the others are open."""
    door = open_door(f"files.test:{plain_site.port}", connections=100, rate=1000)
    opened = [door.connect() for _ in range(100)]
    for sock in opened:
        sock.sendall(get_request("files.test", plain_site.port))
    assert [b"HTTP/1.1 200 OK"] * 100 == [read_all(sock).partition(b"\r\n")[0] for sock in opened]
    for sock in opened:
        sock.close()


@pytest.mark.slow
def test_a_flood_is_slowed_down(open_door: OpenDoor) -> None:
    """After the burst, connections are accepted at the rate of the policy."""
    door = open_door("files.test", rate=5)
    started = time.monotonic()
    for _ in range(25):
        door.ask(connect_request("evil.test", 443))
    assert 0.8 < time.monotonic() - started


def test_the_volume_is_limited(open_door: OpenDoor, plain_site: Site) -> None:
    """Bytes beyond it are cut off, and no more connections are made."""
    plain_site.pages["/mebibyte"] = b"x" * 2**20
    door = open_door(f"files.test:{plain_site.port}", volume="512KiB")
    request = get_request("files.test", plain_site.port, "/mebibyte")
    assert len(door.ask(request)) <= 512 * 1024
    assert "the volume of the network policy is used up" in status_line(door.ask(request))
    assert "the volume of the network policy is used up" == door.reasons[1]


def test_a_client_that_resets_harms_only_itself(open_door: OpenDoor, plain_site: Site) -> None:
    """A reset in every phase; the next connection is served."""
    door = open_door(f"files.test:{plain_site.port}", rate=1000)
    for sent in (
        b"",
        b"CONN",
        connect_request("files.test", plain_site.port),
        get_request("files.test", plain_site.port),
    ):
        sock = door.connect()
        sock.sendall(sent)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    assert b"200 OK" in door.ask(get_request("files.test", plain_site.port))


def test_closing_a_session_ends_its_connections(open_door: OpenDoor, sink: Sink) -> None:
    """When a jail ends, none of its connections remain."""
    door = open_door(f"files.test:{sink.port}")
    with tunnel(door, "files.test", sink.port) as sock:
        door.close()
        assert b"" == read_all(sock)
    with pytest.raises(OSError, match=r"refused|reset"):
        until(lambda: bool(door.connect().close()))


# -- the log --------------------------------------------------------------------------------------------------


def test_the_log_says_whose_jail_it_was(open_door: OpenDoor, caplog: pytest.LogCaptureFixture) -> None:
    """Lines of the proxy's thread have the runtime, its tenant, and the step at which it is by then."""
    caplog.set_level(logging.INFO, "cenote.egress")
    step, written = ["1"], list[dict[str, str]]()
    handler = logging.Handler()
    handler.emit = lambda record: written.append(json.loads(JsonFormatter().format(record)))  # type: ignore[method-assign]
    logging.getLogger("cenote.egress").addHandler(handler)
    try:
        with log_context(runtime="rt_1", tenant="tn_1", step=lambda: step[0]):
            door = open_door("files.test")
        step[0] = "2"
        door.ask(connect_request("evil.test", 443))
    finally:
        logging.getLogger("cenote.egress").removeHandler(handler)
    assert [("rt_1", "tn_1", "2")] == [(line["runtime"], line["tenant"], line["step"]) for line in written]


def test_each_decision_is_logged(open_door: OpenDoor, caplog: pytest.LogCaptureFixture) -> None:
    """The record includes the decision itself, for callers that write an audit log."""
    caplog.set_level(logging.INFO, "cenote.egress")
    door = open_door("files.test")
    door.ask(connect_request("evil.test", 443))
    assert [
        "tunnel evil.test:443 refused: evil.test:443 is not on the allow-list of this runtime"
    ] == caplog.messages
    assert door.ledger.decisions == (caplog.records[0].decision,)  # type: ignore[attr-defined]
    assert isinstance(door.ledger.decisions[0], Decision)


def test_bytes_are_told_when_a_connection_has_ended(open_door: OpenDoor, sink: Sink) -> None:
    """Each decision is logged at once, and a repeated permission at the end, with the bytes both ways."""
    door, heard = open_door(f"files.test:{sink.port}", patience=HASTY), list[tuple[bool, int | None]]()
    door.ledger.witness = lambda decision, passed: heard.append((decision.allowed, passed))
    door.ask(connect_request("evil.test", 443))
    greeting = hello("files.test")
    with tunnel(door, "files.test", sink.port) as sock:
        sock.sendall(greeting)
        until(lambda: [(False, None), (True, None)] == heard[:2])
    until(lambda: (True, len(greeting)) == heard[-1])
    assert 3 == len(heard)


def test_hostile_text_does_not_reach_the_log(open_door: OpenDoor) -> None:
    """Log injection (CWE-117): a reason is one short line of printable ASCII."""
    door = open_door("files.test")
    for target in (b"evil\x1b[31m.test:443", b"x" * 5000 + b":443", b"a%0d%0ab:443"):
        door.ask(b"CONNECT " + target + b" HTTP/1.1\r\n\r\n")
    assert 3 == len(door.reasons)
    assert all(reason.isascii() and reason.isprintable() and len(reason) < 200 for reason in door.reasons)


def test_the_ledger_keeps_the_latest(open_door: OpenDoor) -> None:
    """A jail that is refused without end does not fill the client's memory."""
    ledger = EgressLedger(open_door("files.test").ledger.allow)
    for port in range(1500):
        ledger.note("tunnel", "evil.test", port, reason="no")
    assert (1000, 500) == (len(ledger.decisions), ledger.decisions[0].port)


def test_pace() -> None:
    """A burst after a pause, then one connection per interval; a pause does not add up beyond the burst."""
    pace = ConnectionRate(rate=2)
    assert [0.0] * int(2 * BURST_SECONDS) == [pace.wait(100.0) for _ in range(int(2 * BURST_SECONDS))]
    assert [0.5, 1.0] == [pace.wait(100.0), pace.wait(100.0)]
    assert 0.0 == pace.wait(1000.0)
