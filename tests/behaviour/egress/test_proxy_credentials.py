"""Credentials that the proxy adds: the server gets them, for its own name and paths, and the jail never does."""

from __future__ import annotations

import copy
import os
import pickle
import ssl
import traceback
from collections.abc import Callable

import pytest
from tests.support.egress.fixtures import NetworkRuntime, OpenDoor
from tests.support.egress.world import AUTHORITY, Door, Site, read_all, read_head
from tests.waiting import until

from cenote.runtime import ExecutionResult, PythonRuntime
from cenote_security.errors import UsageError
from cenote_security.network import Allow, Secret
from cenote_security.policy import SandboxPolicy, weakness
from cenote_worker.egress.http_request import HttpRefusal, Tunnel, parse_inside
from cenote_worker.egress.relay import Mask
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.start import JailStarter

VALUE = "Bearer canary-8f1d2c3b4a596877"
WORD = VALUE.removeprefix("Bearer ")
SECRET = Secret(VALUE)
HOST = "api.example.com"
TUNNEL = Tunnel(host=HOST, port=443)


def inside(target: str, *headers: str, method: str = "GET", secret: Secret = SECRET) -> str:
    """The server's view of a request in a tunnel."""
    lines = (f"{method} {target} HTTP/1.1", f"Host: {HOST}", *headers, "", "")
    return parse_inside("\r\n".join(lines).encode("latin-1"), TUNNEL, secret).head.decode("latin-1")


# -- where a credential stands -------------------------------------------------------------------------------


def policy(**settings: object) -> SandboxPolicy:
    return SandboxPolicy(network=Allow([HOST], credentials={HOST: SECRET}), **settings)  # type: ignore[arg-type]


def test_nothing_shows_a_value() -> None:
    """In the text of a policy, copies and errors: a value is only where it is used."""
    shown = [repr(policy()), str(SECRET), repr(policy().network), repr(copy.deepcopy(policy()))]
    refused: list[Callable[[], object]] = [
        lambda: pickle.dumps(policy()),
        lambda: policy().to_json(),
        lambda: Secret(f"{VALUE}\n"),
        lambda: Secret([VALUE]),  # type: ignore[arg-type]
        lambda: Allow([HOST], credentials={HOST: VALUE}),  # type: ignore[dict-item]
        lambda: Allow([HOST], credentials={"other.example.com": SECRET}),
        lambda: SandboxPolicy(network={"credentials": {HOST: VALUE}}),  # type: ignore[arg-type]
        *(
            lambda network=network: SandboxPolicy.from_json(f'{{"network": {network}}}')
            for network in (
                f'{{"destinations": ["{HOST}"], "credentials": {{"{HOST}": "{VALUE}"}}}}',
                f'{{"destinations": ["{HOST}"], "credentials": {{"{HOST}": {{"value": "{VALUE}\\n"}}}}}}',
                f'{{"destinations": ["{HOST}"], "credentials": {{"{HOST}": {{"values": "{VALUE}"}}}}}}',
                f'{{"destinations": ["{HOST}"], "credentials": [["{HOST}", "{VALUE}"]]}}',
                f'[{{"destinations": ["{HOST}"], "credentials": {{"{HOST}": {{"value": "{VALUE}"}}}}}}]',
            )
        ),
    ]
    for act in refused:
        with pytest.raises(UsageError) as caught:
            act()
        shown.append("".join(traceback.format_exception(caught.value)))
    assert [] == [text for text in shown if WORD in text]


def test_json_may_bring_a_credential() -> None:
    """As a request over HTTP does; host names are normalised."""
    credentials = f'{{"API.Example.com": {{"value": "{VALUE}"}}}}'
    text = f'{{"network": {{"destinations": ["{HOST}"], "credentials": {credentials}}}}}'
    assert policy() == SandboxPolicy.from_json(text)
    assert SECRET == policy().network.credential(HOST, 443)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["*.example.com", "example.com:80", "other.com", "127.0.0.1", f"{HOST}."])
def test_a_credential_is_for_one_listed_host_with_tls(name: str) -> None:
    with pytest.raises(UsageError):
        Allow([HOST, "*.example.com", "example.com:80"], credentials={name: SECRET})


@pytest.mark.parametrize("header", ["Host", "content-length", "Connection", "X Y", "", "Accept-Encoding"])
def test_a_header_that_means_something_to_the_proxy(header: str) -> None:
    with pytest.raises(UsageError, match="header"):
        Secret(VALUE, header=header)


@pytest.mark.parametrize("path", ["v1", "/a/../b", "/a//b", "/a?b", "/%61", "/a;b", "/*/b", ""])
def test_a_path_that_has_two_readings_is_no_pattern(path: str) -> None:
    with pytest.raises(UsageError, match="paths"):
        Secret(VALUE, paths=[path])


def test_an_agent_hands_on_no_credential_that_it_has_not() -> None:
    bare = SandboxPolicy(network=Allow([HOST]))
    assert weakness(bare, policy()) is None
    assert weakness(policy(), policy()) is None
    weaker = weakness(policy(), bare)
    assert weaker is not None
    assert WORD not in str(weaker)


# -- which request gets it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["Authorization: Basic eDp5", "AUTHORIZATION: x", "authorization:"])
def test_what_the_jail_says_under_that_name_does_not_pass(own: str) -> None:
    head = inside("/v1/x?y=/../", own, "Accept-Encoding: gzip", "Other: stays")
    assert [f"Authorization: {VALUE}"] == [
        line for line in head.split("\r\n") if "uthorization" in line.lower()
    ]
    assert "Other: stays" in head
    assert "Accept-Encoding: identity" in head
    assert "gzip" not in head


def test_a_name_that_some_servers_take_for_the_header() -> None:
    keyed = Secret(WORD, header="X-Api-Key")
    head = inside("/", "X_Api_Key: mine", "x-api_key: mine", secret=keyed)
    assert "mine" not in head
    assert f"X-Api-Key: {WORD}" in head


PATHS = Secret(VALUE, paths=["/v1/*", "/status"])
GETS_IT = ["/v1/", "/v1/a/b?c=d", "/v1/a%20b", "/status", "/status?now=1", "/v1/models/x:run"]
GOES_WITHOUT = [
    "/",
    "/v1",
    "/V1/a",
    "/v2/a",
    "/status/",
    "/x/../v1/a",
    "//v1/a",
    "/%761/a",
    "/status;x",
    "/?/v1/a",
]
TWO_READINGS = ["/v1/../admin", "/v1/./a", "/v1//a", "/v1/%2e%2e/admin", "/v1/..%2fadmin", "/v1/%252e%252e/admin",
                "/v1/..;/admin", "/v1/a\\..\\b", "/v1/%5c..%5cadmin", "/v1/%00", "/v1/a;b"]  # fmt: skip


@pytest.mark.parametrize("path", GETS_IT)
def test_a_path_that_is_listed(path: str) -> None:
    assert VALUE in inside(path, secret=PATHS)


@pytest.mark.parametrize("path", GOES_WITHOUT)
def test_another_path_goes_without(path: str) -> None:
    """The request passes, with the jail's own headers."""
    head = inside(path, "Authorization: mine", secret=PATHS)
    assert VALUE not in head
    assert "Authorization: mine" in head


@pytest.mark.parametrize("path", TWO_READINGS)
def test_a_path_that_leads_out_of_a_listed_one(path: str) -> None:
    """Path confusion (CWE-436): the proxy and the server read different paths."""
    with pytest.raises(HttpRefusal, match="two ways"):
        inside(path, secret=PATHS)


SMUGGLED = {
    "two hosts": ("/", ["Host: other.example.com"], "GET"),
    "two lengths": ("/", ["Content-Length: 4", "Content-Length: 40"], "POST"),
    "length and chunks": ("/", ["Content-Length: 4", "Transfer-Encoding: chunked"], "POST"),
    "chunks": ("/", ["Transfer-Encoding: chunked"], "POST"),
    "a name with a space": ("/", ["Transfer-Encoding : chunked"], "POST"),
    "a folded line": ("/", ["X: a", " Transfer-Encoding: chunked"], "POST"),
    "a bare line feed": ("/", ["X: a\nTransfer-Encoding: chunked"], "POST"),
    "an absolute URL": (f"https://{HOST}/", [], "GET"),
    "the URL of another host": ("https://other.example.com/", [], "GET"),
    "a host as the target": ("other.example.com:443", [], "CONNECT"),
    "a server as a whole": ("*", [], "OPTIONS"),
    "a trace": ("/", [], "TRACE"),
    "a fragment": ("/#/", [], "GET"),
    "a header struck out": ("/", ["Connection: Authorization"], "GET"),
    "another protocol": ("/", ["Connection: Upgrade", "Upgrade: websocket"], "GET"),
}


@pytest.mark.parametrize("request_parts", SMUGGLED.values(), ids=SMUGGLED.keys())
def test_a_request_with_two_readings_is_refused(request_parts: tuple[str, list[str], str]) -> None:
    """Request smuggling (CWE-444)."""
    target, headers, method = request_parts
    with pytest.raises(HttpRefusal):
        inside(target, *headers, method=method)


@pytest.mark.parametrize(
    "host", ["other.example.com", f"{HOST}.", f"{HOST}:8443", "127.0.0.1", "", f"x@{HOST}"]
)
def test_the_host_is_that_of_the_tunnel(host: str) -> None:
    with pytest.raises(HttpRefusal):
        parse_inside(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(), TUNNEL, SECRET)


# -- an answer with the credential in it ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_echo_is_masked(size: int) -> None:
    """In any chunking; of the same length, and nothing else is changed or lost."""
    said = f"Bearer Bear {VALUE[:-1]} {VALUE}! {WORD}{WORD} canary-".encode()
    mask = Mask(VALUE)
    passed = b"".join(mask.take(said[at : at + size]) for at in range(0, len(said), size)) + mask.rest()
    expected = f"Bearer Bear {VALUE[:-1]} {'*' * len(VALUE)}! {'*' * 2 * len(WORD)} canary-"
    assert expected.encode() == passed


# -- the proxy ------------------------------------------------------------------------------------------------


def tls(door: Door, host: str, port: int) -> ssl.SSLSocket:
    """A tunnel of a client that trusts the proxy."""
    assert door.authority is not None
    context = ssl.create_default_context(cadata=door.authority.certificate.decode())
    sock = door.connect()
    sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    assert b" 200 " in (head := read_head(sock)), head
    return context.wrap_socket(sock, server_hostname=host)


def asked(
    door: Door, host: str, port: int, path: str, *headers: str, body: bytes = b"", verb: str = "GET"
) -> bytes:
    lines = (f"{verb} {path} HTTP/1.1", f"Host: {host}:{port}", *headers, "", "")
    with tls(door, host, port) as sock:
        sock.sendall("\r\n".join(lines).encode() + body)
        return read_all(sock)


@pytest.fixture
def secured(open_door: OpenDoor, tls_site: Site) -> Door:
    """Two hosts at one server; the first has a credential."""
    tls_site.requests.clear()
    tls_site.heads.clear()
    names = [f"{name}.test:{tls_site.port}" for name in ("files", "other")]
    return open_door(*names, credentials={names[0]: SECRET})


def test_the_server_gets_it_and_the_jail_gets_the_answer(secured: Door, tls_site: Site) -> None:
    answer = asked(secured, "files.test", tls_site.port, "/x", "Content-Length: 4", body=b"body", verb="POST")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\nConnection: close\r\n")
    assert answer.endswith(b"got body")
    assert f"Authorization: {VALUE}" in tls_site.heads[-1]
    (decision,) = secured.ledger.decisions
    assert ("tunnel", "files.test", True, "") == (
        decision.kind,
        decision.host,
        decision.allowed,
        decision.reason,
    )


def test_an_echo_comes_back_masked(secured: Door, tls_site: Site) -> None:
    answer = asked(secured, "files.test", tls_site.port, "/echo")
    assert f"Authorization: {VALUE}" in tls_site.heads[-1]
    assert f"Authorization: {'*' * len(VALUE)}".encode() in answer
    assert WORD.encode() not in answer


def test_another_host_of_the_same_server_goes_without(secured: Door, tls_site: Site) -> None:
    """Its tunnel is end to end: the client sees the server's own certificate."""
    with secured.connect() as sock:
        sock.sendall(f"CONNECT other.test:{tls_site.port} HTTP/1.1\r\n\r\n".encode())
        read_head(sock)
        context = ssl.create_default_context(cafile=str(AUTHORITY))
        with context.wrap_socket(sock, server_hostname="other.test") as inner:
            inner.sendall(f"GET /echo HTTP/1.1\r\nHost: files.test:{tls_site.port}\r\n\r\n".encode())
            inner.settimeout(0.5)
            assert b"uthorization" not in inner.recv(65536)
    assert "uthorization" not in tls_site.heads[-1]


def test_a_second_request_on_the_connection(secured: Door, tls_site: Site) -> None:
    """Pipelined, or hidden after a body: it is never sent."""
    first = "Content-Length: 4"
    second = f"bodyGET /second HTTP/1.1\r\nHost: files.test:{tls_site.port}\r\n\r\n"
    asked(secured, "files.test", tls_site.port, "/first", first, body=second.encode(), verb="POST")
    assert [] == [line for line in tls_site.requests if "second" in line]


def test_plain_http_to_such_a_host_is_refused(secured: Door, tls_site: Site) -> None:
    answer = secured.ask(
        f"GET http://files.test:{tls_site.port}/ HTTP/1.1\r\nHost: files.test:{tls_site.port}\r\n\r\n".encode()
    )
    assert b"write https://" in answer


def test_a_server_that_is_not_that_host_gets_nothing(
    open_door: OpenDoor, tls_site: Site, plain_site: Site
) -> None:
    """Its certificate is for other names, or it does not use TLS."""
    tls_site.heads.clear()
    for host, port in (("evil.test", tls_site.port), ("files.test", plain_site.port)):
        door = open_door(f"{host}:{port}", credentials={f"{host}:{port}": SECRET})
        answer = door.ask(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        assert b" 502 " in answer
        assert "does not show that it is this host" in door.reasons[0]
    assert [] == tls_site.heads


def test_a_client_that_does_not_trust_the_proxy(secured: Door, tls_site: Site) -> None:
    """A pinned certificate: the log has the reason for the failure."""
    with secured.connect() as sock:
        sock.sendall(f"CONNECT files.test:{tls_site.port} HTTP/1.1\r\n\r\n".encode())
        read_head(sock)
        with pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context(cafile=str(AUTHORITY)).wrap_socket(sock, server_hostname="files.test")
    until(lambda: bool(secured.reasons))
    assert "no TLS with the proxy" in secured.reasons[0]


def test_first_bytes_that_come_with_the_request_for_the_tunnel(secured: Door, tls_site: Site) -> None:
    assert secured.authority is not None
    context = ssl.create_default_context(cadata=secured.authority.certificate.decode())
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="files.test")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with secured.connect() as sock:
        sock.sendall(f"CONNECT files.test:{tls_site.port} HTTP/1.1\r\n\r\n".encode() + outgoing.read())
        read_head(sock)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(sock.recv(65536))
    assert "files.test" in str(client.getpeercert())


# -- the jail -------------------------------------------------------------------------------------------------


READS: dict[str, str] = {
    "environment": "import os\nlook(repr(dict(os.environ)))",
    "proc": """
import glob
for path in glob.glob("/proc/[0-9s]*/environ") + glob.glob("/proc/[0-9s]*/cmdline") + glob.glob("/proc/*/fd/*"):
    try:
        look(open(path, "rb").read(1 << 20))
    except OSError:
        pass
""",
    "files": """
import os
for top in ("/tmp", "/etc", os.getcwd(), os.path.expanduser("~")):
    for folder, _, names in os.walk(top):
        for name in names:
            try:
                look(open(os.path.join(folder, name), "rb").read(1 << 20))
            except OSError:
                pass
""",
    "own memory": """
memory = open("/proc/self/mem", "rb", 0)
for line in open("/proc/self/maps"):
    span, rights = line.split()[:2]
    start, end = (int(part, 16) for part in span.split("-"))
    if "r" in rights and end - start < 1 << 28:
        try:
            memory.seek(start)
            look(memory.read(end - start))
        except (OSError, ValueError, OverflowError):
            pass
""",
    "redirect to another host": "look(get('/to/https://other.test:PORT/echo'))",
    "another host": "look(get('/echo', host='other.test'))",
    "another path": "look(get('/echo/public'))",
    "echo": "look(get('/v1/../echo')); look(get('/echo'))",
    "echo where it is listed": "look(get('/echo/v1/'))",
    "error": """
look(get('/v1/x', method='NONSENSE'))
look(get('/v1/x', {'Content-Length': 'x'}))
look(get('/v1/x', {'Authorization': 'a\\tb'}))
""",
    "second request": """
second = b"GET /echo/v1/ HTTP/1.1\\r\\nHost: files.test:PORT\\r\\nX: "
look(raw(b"POST /v1/x HTTP/1.1\\r\\nHost: files.test:PORT\\r\\nContent-Length: 0\\r\\n\\r\\n" + second))
look(raw(b"POST /v1/x HTTP/1.1\\r\\nHost: files.test:PORT\\r\\nContent-Length: 4\\r\\n"
         b"Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + second))
""",
    "host": """
look(get('/v1/x', {'Host': 'other.test:PORT'}))
look(raw(b"GET /v1/x HTTP/1.1\\r\\nHost: files.test:PORT\\r\\nHost: other.test:PORT\\r\\n\\r\\n"))
""",
    "absolute URL": """
look(raw(b"GET https://other.test:PORT/echo HTTP/1.1\\r\\nHost: other.test:PORT\\r\\n\\r\\n"))
look(raw(b"GET http://files.test:PORT/echo/v1/ HTTP/1.1\\r\\nHost: files.test:PORT\\r\\n\\r\\n"))
look(plain("http://files.test:PORT/echo/v1/"))
""",
    "names": """
names = "FILES.test files.test. files.test:PORT0 x.files.test files.test@other.test files%2etest 127.0.0.1"
for name in names.split():
    look(get('/echo/v1/', host=name))
""",
}
"""Each searches for the canary, and puts its results into `found`."""

TOOLS = f"""
import http.client, re, socket, ssl, urllib.request
found = []
def look(data):
    data = data if isinstance(data, bytes) else str(data).encode()
    found.extend(re.findall(b"[c]anary-{WORD.removeprefix("canary-")[0]}[0-9a-f]+", data))
context = ssl.create_default_context()
def tunnel(host):
    connection = http.client.HTTPSConnection("127.0.0.1", 3128, timeout=20, context=context)
    connection.set_tunnel(host, PORT)
    return connection
def get(path, headers={{}}, host="files.test", method="GET"):
    connection = tunnel(host)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return repr(answer.getheaders()).encode() + answer.read()
    except Exception as error:
        return repr(error) + repr(error.args)
    finally:
        connection.close()
def raw(data):
    connection = tunnel("files.test")
    try:
        connection.connect()
        connection.sock.sendall(data)
        seen = b""
        while chunk := connection.sock.recv(65536):
            seen += chunk
        return seen
    except OSError as error:
        return repr(error)
    finally:
        connection.close()
def plain(url):
    try:
        return urllib.request.urlopen(url, timeout=20).read()
    except Exception as error:
        return repr(error)
"""


def ran(runtime: PythonRuntime, code: str, port: int) -> ExecutionResult:
    result = runtime.execute(code.replace("PORT", str(port)), timeout=60)
    assert result.success, result
    return result


def test_a_hostile_cell_finds_no_credential(
    network_runtime: NetworkRuntime, tls_site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """The server got it in each request for a listed path; nothing that the jail can read has it."""
    tls_site.heads.clear()
    caplog.set_level("DEBUG")
    names = [f"{name}.test:{tls_site.port}" for name in ("files", "other")]
    listed = Secret(VALUE, paths=["/v1/*", "/echo/v1/*"])
    runtime = network_runtime(*names, credentials={names[0]: listed})
    ran(runtime, TOOLS, tls_site.port)
    for code in ("get('/v1/before')", "get('/echo/v1/')"):
        ran(runtime, code, tls_site.port)
    assert [f"Authorization: {VALUE}" in head for head in tls_site.heads] == [True, True]
    results = [ran(runtime, f"{code}\nfound", tls_site.port) for code in READS.values()]
    assert dict.fromkeys(READS, "[]") == {
        way: result.value for way, result in zip(READS, results, strict=True)
    }
    # Each search method does find what exists.
    planted = "import os\nos.environ['PLANTED'] = 'can' 'ary-8aaa'\nopen('/tmp/x', 'w').write(os.environ['PLANTED'])"
    ran(runtime, planted, tls_site.port)
    for way in ("environment", "files", "own memory"):
        assert "b'canary-8aaa'" in str(
            ran(runtime, f"found.clear()\n{READS[way]}\nfound", tls_site.port).value
        ), way
    said = "found.clear()\nlook(get('/echo', {'X': os.environ['PLANTED']}))\nfound"
    assert "[b'canary-8aaa']" == ran(runtime, said, tls_site.port).value
    # It is in no record of the client either.
    kept = [repr(results), repr(runtime.network_log), caplog.text, repr(runtime)]
    kept += [repr(vars(record)) for record in caplog.records]
    assert [] == [text for text in kept if WORD in text]


def test_programs_trust_the_proxy_and_whom_they_would(
    network_runtime: NetworkRuntime, tls_site: Site
) -> None:
    """Clients find the authority in their environment; its key is not in the jail."""
    host = f"files.test:{tls_site.port}"
    runtime = network_runtime(host, credentials={host: SECRET}, env={"AWS_CA_BUNDLE": "mine"})
    for client in (
        "import urllib.request\nurllib.request.urlopen(url).read()",
        "import requests\nrequests.get(url).content",
        "import httpx\nhttpx.get(url).content",
    ):
        assert "b'got '" == ran(runtime, f"url = 'https://{host}/a'\n{client}", tls_site.port).value
    code = "import os, ssl\ntext = open(os.environ['SSL_CERT_FILE']).read()\n"
    code += "text.count('BEGIN CERT') > 100, 'PRIVATE' in text, os.environ['AWS_CA_BUNDLE']"
    assert "(True, False, 'mine')" == ran(runtime, code, tls_site.port).value


def test_another_process_goes_on_with_a_jail_and_its_authority(nursery: JailStarter) -> None:
    """The handed-over state has it; its text does not show the key."""
    network = Allow([HOST], credentials={HOST: SECRET})
    ends = nursery.start_ends(SandboxPolicy(isolation="strict", preload=(), network=network))
    later = JailEnds.arrived(ends.record(), list(map(os.dup, ends.descriptors())))
    assert ends.authority is not None
    assert ends.authority == later.authority
    assert "PRIVATE" not in repr(later)
    later.close()
    ends.close()
