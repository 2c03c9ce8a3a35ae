"""Jails with a network: what programs inside reach, and the ways that must stay closed."""

from __future__ import annotations

import errno
import io
import zipfile

import pytest
from tests.support.descriptors import all_closed
from tests.support.egress.fixtures import NetworkRuntime
from tests.support.egress.world import AUTHORITY, Sink, Site
from tests.waiting import until

from cenote.runtime import ExecutionResult, PythonRuntime, Variable
from cenote_security.errors import IsolationUnavailableError
from cenote_security.network import Allow
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.proxy import EgressService
from cenote_worker.supervisor import start
from cenote_worker.supervisor.exit_reason import JailExit


def run(runtime: PythonRuntime, code: str) -> ExecutionResult:
    return runtime.execute(code, timeout=60)


def value(runtime: PythonRuntime, code: str) -> str:
    result = run(runtime, code)
    assert result.success, result
    assert result.value is not None
    return result.value


CLIENTS = {
    "urllib": "import urllib.request; urllib.request.urlopen(url, context=context).read()",
    "requests": "import requests; requests.get(url, verify='ca.pem').content",
    "httpx": "import httpx; httpx.get(url, verify=context).content",
}


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS.keys())
def test_http_clients_work_by_themselves(
    network_runtime: NetworkRuntime, plain_site: Site, tls_site: Site, client: str
) -> None:
    """They find the proxy in the environment, and check the server's certificate themselves."""
    runtime = network_runtime(f"files.test:{plain_site.port}", f"files.test:{tls_site.port}")
    runtime.inject(Variable("authority", AUTHORITY.read_text()))
    run(runtime, "import ssl; open('ca.pem', 'w').write(authority)")
    run(runtime, "context = ssl.create_default_context(cafile='ca.pem')")
    for scheme, site in (("http", plain_site), ("https", tls_site)):
        code = f"url = '{scheme}://files.test:{site.port}/a'\n{client}"
        assert "b'got '" == value(runtime, code)
    kinds = [decision.kind for decision in runtime.network_log if decision.allowed]
    assert ["http", "tunnel"] == kinds


def wheel(name: str) -> bytes:
    """The smallest wheel."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(f"{name}.py", "answer = 42\n")
        info = f"{name}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\n")
    return held.getvalue()


@pytest.mark.slow
def test_pip_installs_from_a_listed_index(network_runtime: NetworkRuntime, plain_site: Site) -> None:
    """A package that was missing can be imported."""
    file = "/tinyprobe-1.0-py3-none-any.whl"
    plain_site.pages |= {
        "/simple/tinyprobe/": f'<a href="{file}">tinyprobe</a>'.encode(),
        file: wheel("tinyprobe"),
    }
    runtime = network_runtime(f"files.test:{plain_site.port}")
    index = f"http://files.test:{plain_site.port}/simple"
    options = f"--no-cache-dir --disable-pip-version-check --target lib --trusted-host files.test -i {index}"
    result = run(
        runtime, f"import sys\npython = sys.executable\n!{{python}} -m pip install {options} tinyprobe"
    )
    assert "Successfully installed tinyprobe-1.0" in result.stdout, result
    assert "42" == value(runtime, "sys.path.append('lib')\nimport tinyprobe\ntinyprobe.answer")


REFUSED = {
    "another name": "https://evil.test/",
    "another port": "https://files.test:444/",
    "loopback": "http://127.0.0.1:{port}/",
    "the proxy itself": "http://127.0.0.1:3128/",
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "mapped": "http://[::ffff:127.0.0.1]:{port}/",
    "hexadecimal": "http://0x7f.1:{port}/",
    "decimal": "http://2130706433:{port}/",
    "localhost": "http://localhost:{port}/",
    "a dot at the end": "http://files.test.:{port}/",
    "redirected": "http://files.test:{port}/to/http://169.254.169.254/",
}


@pytest.mark.sweep
@pytest.mark.parametrize("url", REFUSED.values(), ids=REFUSED.keys())
def test_other_addresses_are_refused(network_runtime: NetworkRuntime, plain_site: Site, url: str) -> None:
    """In every notation, requested directly or by a redirect: the error is the proxy's."""
    runtime = network_runtime(f"files.test:{plain_site.port}")
    result = run(
        runtime, f"import urllib.request\nurllib.request.urlopen({url.format(port=plain_site.port)!r})"
    )
    assert result.error is not None
    assert "403" in result.error.message
    assert not runtime.network_log[-1].allowed


DIRECT = {
    "no proxy": "import urllib.request as u; u.build_opener(u.ProxyHandler({{}})).open('http://127.0.0.1:{port}/')",
    "NO_PROXY": "import os, urllib.request as u; os.environ['NO_PROXY'] = '*'; u.urlopen('http://files.test:{port}/')",
    "tcp": "import socket; socket.create_connection(('127.0.0.1', {port}), 3)",
    "tcp to the world": "import socket; socket.create_connection(('192.0.2.1', 443), 3)",
    "tcp v6": "import socket; socket.create_connection(('::1', {port}), 3)",
    "udp to the world": "import socket; socket.socket(2, 2).sendto(b'x', ('192.0.2.53', 53))",
    "resolver": "import socket; socket.getaddrinfo('files.test', 80)",
    "own server": "import socket; socket.create_server(('127.0.0.1', 0))",
    "raw": "import socket; socket.socket(2, 3, 1)",
    "packet": "import socket; socket.socket(17, 3)",
    "netlink": "import socket; socket.socket(16, 3, 0)",
    "interface": "import fcntl, socket; fcntl.ioctl(socket.socket(2, 2), 0x8914, b'lo'.ljust(40, bytes(1)))",
}


@pytest.mark.sweep
@pytest.mark.parametrize("code", DIRECT.values(), ids=DIRECT.keys())
def test_there_is_no_other_way(network_runtime: NetworkRuntime, sink: Sink, code: str) -> None:
    """Without the proxy there is no route, no resolver, no privileged socket and no server of its own."""
    runtime = network_runtime(f"files.test:{sink.port}")
    assert not run(runtime, code.format(port=sink.port)).success
    assert ([], ()) == (sink.connections, runtime.network_log)


def test_abstract_sockets_stay_apart(network_runtime: NetworkRuntime) -> None:
    """A network namespace and a Landlock scope: the host's abstract names do not exist inside."""
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # the kernel gives it an unused name
        listener.listen()
        code = f"import socket; socket.socket(1).connect({listener.getsockname()!r})"
        result = run(network_runtime("a.test"), code)
    assert result.error is not None
    assert result.error.type in ("ConnectionRefusedError", "PermissionError")


def test_a_lying_handshake_from_inside(network_runtime: NetworkRuntime, sink: Sink) -> None:
    """Code that speaks to the proxy directly has no more access: the server name must be the tunnel's."""
    runtime = network_runtime(f"files.test:{sink.port}")
    code = f"""
import socket, ssl
raw = socket.create_connection(("127.0.0.1", 3128))
raw.sendall(b"CONNECT files.test:{sink.port} HTTP/1.1\\r\\n\\r\\n")
print(raw.recv(1000))
context = ssl._create_unverified_context()
context.wrap_socket(raw, server_hostname="evil.test")
"""
    result = run(runtime, code)
    assert "200 Connection established" in result.stdout
    assert result.error is not None
    assert "unrecognized name" in result.error.message.lower()
    sink.await_end()
    assert [b""] == [bytes(got) for got in sink.connections]


def test_without_a_network_nothing_of_it_is_there(
    nursery: start.JailStarter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default: no proxy in the environment, no port, and even loopback is down."""
    with PythonRuntime(sandbox=SandboxPolicy(isolation="strict", preload=())) as runtime:
        assert "[]" == value(runtime, "import os\n[name for name in os.environ if 'proxy' in name.lower()]")
        assert not run(runtime, "import socket; socket.create_connection(('127.0.0.1', 3128), 3)").success
        assert () == runtime.network_log


def test_a_way_out_that_cannot_be_opened(nursery: start.JailStarter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jail that needed it is ended, and none of its descriptors remain."""
    policy = SandboxPolicy(isolation="strict", preload=(), network=Allow(["files.test"]))
    first = nursery.start(policy)
    first.end(JailExit(reason="closed"))
    until(lambda: first.death is not None)

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(EgressService, "open", refuse)
    with all_closed(), pytest.raises(OSError, match="Too many"):
        nursery.start(policy)


def test_each_jail_has_a_proxy_of_its_own(network_runtime: NetworkRuntime, plain_site: Site) -> None:
    """The socket identifies the jail: the same address and port can be reachable for one jail only."""
    one, other = network_runtime(f"files.test:{plain_site.port}"), network_runtime("other.test")
    code = f"import urllib.request\nurllib.request.urlopen('http://files.test:{plain_site.port}/').status"
    assert "200" == value(one, code)
    assert not run(other, code).success
    assert [True] == [decision.allowed for decision in one.network_log]
    assert [False] == [decision.allowed for decision in other.network_log]


def test_a_flood_from_inside_leaves_the_client_alone(
    network_runtime: NetworkRuntime, plain_site: Site
) -> None:
    """Hundreds of silent connections: only the jail itself loses its network."""
    flooding, other = network_runtime("a.test"), network_runtime(f"files.test:{plain_site.port}")
    code = """
import socket
held = []
for _ in range(300):
    sock = socket.socket(); sock.setblocking(False); sock.connect_ex(("127.0.0.1", 3128)); held.append(sock)
len(held)
"""
    assert "300" == value(flooding, code)
    status = f"import urllib.request\nurllib.request.urlopen('http://files.test:{plain_site.port}/').status"
    assert "200" == value(other, status)


def test_the_log_and_the_volume_outlive_a_jail(network_runtime: NetworkRuntime) -> None:
    """Killing its jail gives code no new allowance and does not clear the log."""
    runtime = network_runtime("a.test")
    code = "import urllib.request\nurllib.request.urlopen('https://evil.test/')"
    run(runtime, code)
    run(runtime, "import os\nos.kill(os.getpid(), 9)")
    run(runtime, code)
    assert ["evil.test", "evil.test"] == [decision.host for decision in runtime.network_log]


def test_the_end_of_a_jail_ends_its_connections(network_runtime: NetworkRuntime, sink: Sink) -> None:
    """Nothing of it stays connected outside."""
    runtime = network_runtime(f"files.test:{sink.port}")
    code = f"""
import socket
kept = socket.create_connection(("127.0.0.1", 3128))
kept.sendall(b"GET http://files.test:{sink.port}/ HTTP/1.1\\r\\nHost: files.test:{sink.port}\\r\\n\\r\\n")
"""
    assert run(runtime, code).success
    until(lambda: len(sink.connections) == 1)
    runtime.close()
    sink.await_end()


def test_hints_tell_of_the_proxy(network_runtime: NetworkRuntime) -> None:
    """A model that connects directly reads what works instead."""
    result = run(network_runtime("a.test"), "import socket; socket.create_connection(('192.0.2.1', 443), 3)")
    assert result.error is not None
    assert "through the proxy that HTTPS_PROXY names" in result.error.message


def test_a_machine_without_namespaces_has_no_allow_list() -> None:
    """Where `auto` gives less than `strict`, the policy is an error; isolation is not weakened."""

    class Elsewhere:
        isolation = "landlock"

    with pytest.raises(IsolationUnavailableError, match="needs a network namespace"):
        start._check_network(Elsewhere())  # type: ignore[arg-type]
    assert "auto" == SandboxPolicy(network=Allow(["a.test"])).isolation
