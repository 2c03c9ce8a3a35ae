"""The HTTP application of `cenote up`: the same runtimes, tokens, tenants and certificates as over gRPC."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from cenote import connect
from cenote.doors.http_server import listen, url_of
from cenote.gateway.http_interface import HttpInterface
from cenote.gateway.options import PlatformOptions
from cenote.gateway.state_folder import StateFolder
from cenote_security.errors import UnavailableError, UsageError


def cenote(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command of a user with a folder of their own."""
    own = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG")}
    given = {name: text for name, text in os.environ.items() if not name.startswith("CENOTE_")}
    command = [sys.executable, "-m", "cenote.cli.main", *words]
    return subprocess.run(command, env=given | own, capture_output=True, text=True, timeout=100)


@dataclass(frozen=True)
class World:
    """A platform that was started by `cenote up`, and tokens of two tenants."""

    folder: Path
    address: str
    authority: str
    http: str
    ours: str
    theirs: str

    def client(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        verify = ssl.create_default_context(cafile=self.authority) if self.authority else True
        return httpx.Client(base_url=self.http, headers=headers, timeout=60, trust_env=False, verify=verify)


@contextmanager
def platform(folder: Path, *words: str) -> Iterator[World]:
    done = cenote(folder, "up", "--without-ray", "--port", "0", "--json", *words)
    assert 0 == done.returncode, done.stderr
    said = json.loads(done.stdout)
    try:
        tokens = list[str]()
        for tenant in ("ours", "theirs"):
            assert 0 == cenote(folder, "tenant", "create", tenant).returncode
            tokens.append(cenote(folder, "token", "create", tenant).stdout.strip())
        yield World(folder, said["address"], said["authority"], said["http"], *tokens)
    finally:
        cenote(folder, "down")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with platform(tmp_path_factory.mktemp("http")) as started:
        yield started


@pytest.fixture
def ours(world: World) -> Iterator[httpx.Client]:
    with world.client(world.ours) as client:
        yield client


@pytest.fixture
def theirs(world: World) -> Iterator[httpx.Client]:
    with world.client(world.theirs) as client:
        yield client


def test_one_namespace_over_http_and_grpc(world: World, ours: httpx.Client) -> None:
    """What one door binds, the other reads; each step has its door on record."""
    ours.put("/v1/runtimes/both", json={}).raise_for_status()
    assert ours.post("/v1/runtimes/both/cells", json={"code": "x = 41"}).json()["success"]
    with connect(world.address, world.ours).runtime("both") as runtime:
        assert 41 == runtime.retrieve("x")
        runtime.execute("x += 1")
    assert "42" == ours.post("/v1/runtimes/both/cells", json={"code": "x"}).json()["value"]
    assert ["http", "", "http"] == [step["author"] for step in ours.get("/v1/runtimes/both/steps").json()]
    ours.delete("/v1/runtimes/both").raise_for_status()
    assert [] == connect(world.address, world.ours).runtimes()


def test_a_tenant_sees_nothing_of_another_s(ours: httpx.Client, theirs: httpx.Client) -> None:
    """Neither that a runtime of that name is there, nor what is in it, by any door."""
    ours.put("/v1/runtimes/mine", json={}).raise_for_status()
    ours.post("/v1/runtimes/mine/cells", json={"code": "secret = 'ours'"}).raise_for_status()
    assert [] == theirs.get("/v1/runtimes").json()
    for path in ("/v1/runtimes/mine/variables/secret", "/v1/runtimes/mine/steps"):
        assert 404 == theirs.get(path).status_code
    assert 404 == theirs.post("/v1/runtimes/mine/cells", json={"code": "secret"}).status_code
    assert 404 == theirs.delete("/v1/runtimes/mine").status_code
    theirs.put("/v1/runtimes/mine", json={}).raise_for_status()  # another one, of the same name
    assert not theirs.post("/v1/runtimes/mine/cells", json={"code": "secret"}).json()["success"]
    assert 'state="ready"} 1' in theirs.get("/metrics").text
    sandbox = ours.post("/sandboxes", json={"templateID": "base"}, headers=_key(ours)).json()["sandboxID"]
    assert 404 == theirs.get(f"/sandboxes/{sandbox}", headers=_key(theirs)).status_code
    assert [] == theirs.get("/v2/sandboxes", headers=_key(theirs)).json()
    assert 404 == theirs.delete(f"/sandboxes/{sandbox}", headers=_key(theirs)).status_code
    ours.delete(f"/sandboxes/{sandbox}", headers=_key(ours)).raise_for_status()
    for client in (ours, theirs):
        client.delete("/v1/runtimes/mine").raise_for_status()


def _key(client: httpx.Client) -> dict[str, str]:
    """As E2B's clients send their token."""
    return {"X-API-Key": client.headers["authorization"].removeprefix("Bearer ")}


@pytest.mark.parametrize("token", ["no-such-token", "cenote_" + "x" * 60, "é"])
def test_a_token_that_is_none_opens_nothing(world: World, token: str) -> None:
    """By each door that takes one."""
    headers = {"Authorization": f"Bearer {token}".encode()}
    with world.client(world.ours) as client:
        for path in ("/v1/runtimes", "/metrics"):
            assert 401 == client.get(path, headers=headers).status_code
        assert 401 == client.post("/mcp", headers=headers, json={}).status_code
        sandboxes = client.get("/sandboxes", headers={"X-API-Key": token.encode(), "Authorization": ""})
        assert 401 == sandboxes.status_code


def test_a_token_that_is_revoked_opens_nothing_new(world: World) -> None:
    """Also one that was good before, within the time in which a platform asks again."""
    token = cenote(world.folder, "token", "create", "ours").stdout.strip()
    with world.client(token) as client:
        assert 200 == client.get("/v1/runtimes").status_code
        for listed in json.loads(cenote(world.folder, "token", "ls", "ours", "--json").stdout)[1:]:
            cenote(world.folder, "token", "revoke", "ours", listed["id"])
        assert 401 == client.get("/v1/runtimes").status_code


def test_probes_need_no_token(world: World) -> None:
    """Alive and ready, with the version."""
    with httpx.Client(base_url=world.http, trust_env=False) as client:
        assert {"status": "ok", "ready": True} == {
            name: client.get("/healthz").json()[name] for name in ("status", "ready")
        }
        assert 200 == client.get("/readyz").status_code


def test_metrics_are_those_of_the_token(world: World, ours: httpx.Client) -> None:
    """In the format of Prometheus: of the tenant, and of the machines for who may see them."""
    said = ours.get("/metrics")
    assert "text/plain; version=0.0.4; charset=utf-8" == said.headers["content-type"]
    lines = said.text.splitlines()
    assert 'cenote_runtimes{state="lost"} 0' in lines
    assert "cenote_ready 1" in lines
    operator = (world.folder / "CONFIG" / "cenote" / "token").read_text().strip()
    with world.client(operator) as client:
        assert 'cenote_node_up{node="local"} 1' in client.get("/metrics").text.splitlines()


@pytest.mark.parametrize(("name", "value"), [("Host", "evil.example"), ("Origin", "https://evil.example")])
def test_pages_of_other_sites_are_refused(ours: httpx.Client, name: str, value: str) -> None:
    """Also with a good token."""
    assert ours.get("/v1/runtimes", headers={name: value}).status_code in (400, 403)


def test_a_port_that_is_taken_is_said_before_anything_is_started(tmp_path: Path) -> None:
    """With what chooses another one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        done = cenote(tmp_path, "up", "--without-ray", "--port", "0", "--http", at)
    assert 4 == done.returncode
    assert f"cannot listen on {at}" in done.stderr
    assert "--http HOST:PORT" in done.stderr
    assert 1 == done.stderr.count("\n")
    assert "no platform runs here" in cenote(tmp_path, "down").stdout


def test_tls_is_that_of_grpc(tmp_path: Path) -> None:
    """The platform's own certificate, which its authority vouches for; nothing answers in the clear."""
    with platform(tmp_path, "--tls") as world, world.client(world.ours) as client:
        assert world.http.startswith("https://127.0.0.1:")
        client.put("/v1/runtimes/etl", json={}).raise_for_status()
        assert "42" == client.post("/v1/runtimes/etl/cells", json={"code": "6 * 7"}).json()["value"]
        with httpx.Client(trust_env=False) as stranger:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                stranger.get(f"{world.http}/healthz")
            with pytest.raises(httpx.HTTPError):
                stranger.get(f"{world.http.replace('https', 'http')}/healthz")


def test_it_can_be_left_out(tmp_path: Path) -> None:
    with platform(tmp_path, "--no-http") as world:
        assert "" == world.http


def test_a_port_that_is_taken_is_said_in_one_line_with_both_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for the one by default, which is not asked for by an option. Nothing is started before."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr("cenote.gateway.options.HTTP_PORT", taken.getsockname()[1])
        options = PlatformOptions(state=StateFolder(path=tmp_path))
        with pytest.raises(UnavailableError) as caught:
            HttpInterface(options, None)
    said = str(caught.value)
    assert "\n" not in said
    assert "127.0.0.1:" in said
    assert "in use" in said
    assert "--http HOST:PORT" in said
    assert "--no-http" in said


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_urls_have_addresses_in_brackets(host: str) -> None:
    with listen(host, 0) as listening:
        assert url_of("http", host, listening) == f"http://[::1]:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"http": "8480"}, "http is HOST:PORT"),
        ({"http": "localhost:70000"}, "http is HOST:PORT"),
        ({"http": "localhost:0", "no_http": True}, "do not go together"),
        ({"http": "0.0.0.0:8480"}, "add --tls"),
    ],
)
def test_wrong_options(tmp_path: Path, given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        PlatformOptions(state=StateFolder(path=tmp_path), **given)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, ("127.0.0.1", 8480)),
        ({"port": 0}, ("127.0.0.1", 0)),
        ({"http": "[::1]:99"}, ("[::1]", 99)),
    ],
)
def test_where_it_listens(tmp_path: Path, given: dict[str, object], address: tuple[str, int]) -> None:
    """On the host of gRPC, on a port of its own."""
    assert address == PlatformOptions(state=StateFolder(path=tmp_path), **given).http_address
