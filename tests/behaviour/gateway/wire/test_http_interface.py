"""The HTTP application of `cenote up`: the same runtimes, tokens, tenants and certificates as over gRPC."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.support.doors.browser import Browser
from tests.waiting import PATIENCE, until

from cenote import SandboxPolicy, connect
from cenote.doors.http_server import listen, url_of
from cenote.gateway.api.http_interface import HttpInterface
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.store.state_folder import StateFolder
from cenote_security.errors import UnavailableError, UsageError

COMMAND = (sys.executable, "-m", "cenote.cli.main")


def environment(folder: Path) -> dict[str, str]:
    """The environment of a user with an own folder."""
    own = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG")}
    return {name: text for name, text in os.environ.items() if not name.startswith("CENOTE_")} | own


def cenote(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], env=environment(folder), capture_output=True, text=True, timeout=100
    )


@dataclass(frozen=True)
class World:
    """A platform that `cenote up` started, and tokens of two tenants."""

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

    def operator(self) -> httpx.Client:
        """The token that may see the machines."""
        return self.client((self.folder / "CONFIG" / "cenote" / "token").read_text().strip())


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
    """A name that one interface binds is readable by the other; each step records its interface."""
    ours.put("/v1/runtimes/both", json={}).raise_for_status()
    assert ours.post("/v1/runtimes/both/cells", json={"code": "x = 41"}).json()["success"]
    with connect(world.address, world.ours).runtime("both") as runtime:
        assert 41 == runtime.retrieve("x")
        runtime.execute("x += 1")
    assert "42" == ours.post("/v1/runtimes/both/cells", json={"code": "x"}).json()["value"]
    assert ["http", "", "http"] == [step["author"] for step in ours.get("/v1/runtimes/both/steps").json()]
    ours.delete("/v1/runtimes/both").raise_for_status()
    assert "both" not in [each.name for each in connect(world.address, world.ours).runtimes()]


@pytest.mark.slow
def test_a_tenant_sees_nothing_of_another_s(ours: httpx.Client, theirs: httpx.Client) -> None:
    """Neither that a runtime of that name exists, nor its content, by any interface."""
    ours.put("/v1/runtimes/mine", json={}).raise_for_status()
    ours.post("/v1/runtimes/mine/cells", json={"code": "secret = 'ours'"}).raise_for_status()
    assert [] == theirs.get("/v1/runtimes").json()
    for path in ("/v1/runtimes/mine/variables/secret", "/v1/runtimes/mine/steps"):
        assert 404 == theirs.get(path).status_code
    assert 404 == theirs.post("/v1/runtimes/mine/cells", json={"code": "secret"}).status_code
    assert 404 == theirs.delete("/v1/runtimes/mine").status_code
    theirs.put("/v1/runtimes/mine", json={}).raise_for_status()  # another one, of the same name
    assert not theirs.post("/v1/runtimes/mine/cells", json={"code": "secret"}).json()["success"]
    assert 'state="ready"} 1.0' in theirs.get("/metrics").text
    sandbox = ours.post("/sandboxes", json={"templateID": "base"}, headers=_key(ours)).json()["sandboxID"]
    assert 404 == theirs.get(f"/sandboxes/{sandbox}", headers=_key(theirs)).status_code
    assert [] == theirs.get("/v2/sandboxes", headers=_key(theirs)).json()
    assert 404 == theirs.delete(f"/sandboxes/{sandbox}", headers=_key(theirs)).status_code
    ours.delete(f"/sandboxes/{sandbox}", headers=_key(ours)).raise_for_status()
    for client in (ours, theirs):
        client.delete("/v1/runtimes/mine").raise_for_status()


def _key(client: httpx.Client) -> dict[str, str]:
    """In the header that E2B's clients use."""
    return {"X-API-Key": client.headers["authorization"].removeprefix("Bearer ")}


def test_pages_of_the_console_are_a_tenant_s(world: World, ours: httpx.Client) -> None:
    """A tenant's data is neither on the other tenant's pages, nor at their addresses."""
    ours.put("/v1/runtimes/shown", json={}).raise_for_status()
    ours.post("/v1/runtimes/shown/cells", json={"code": "kept = 'ours'"}).raise_for_status()
    for token, sees in ((world.ours, True), (world.theirs, False)):
        browser = Browser(world.http)
        browser.open("/sign-in")
        browser.send("/sign-in", token=token)
        assert sees == ("shown" in browser.page.text)
        browser.open("/runtimes/shown", status=200 if sees else 404)
        assert sees == ("kept" in browser.page.text)
        browser.open("/runtimes/shown/steps/1", status=200 if sees else 404)
        browser.http.close()
    reader = cenote(world.folder, "token", "create", "ours", "--scope", "runtimes:read").stdout.strip()
    browser = Browser(world.http)
    browser.open("/sign-in")
    browser.send("/sign-in", token=reader)
    browser.open("/runtimes/shown")
    assert "kept" in browser.page.text
    browser.post("/runtimes/shown/run", status=403, code="kept = 'changed'")
    assert "runtimes:write" in browser.page.text
    browser.http.close()
    ours.delete("/v1/runtimes/shown").raise_for_status()


@pytest.mark.parametrize("token", ["no-such-token", "cenote_" + "x" * 60, "é"])
def test_a_token_that_is_none_opens_nothing(world: World, token: str) -> None:
    """By each interface that accepts one."""
    headers = {"Authorization": f"Bearer {token}".encode()}
    with world.client(world.ours) as client:
        for path in ("/v1/runtimes", "/metrics"):
            assert 401 == client.get(path, headers=headers).status_code
        assert 401 == client.post("/mcp", headers=headers, json={}).status_code
        sandboxes = client.get("/sandboxes", headers={"X-API-Key": token.encode(), "Authorization": ""})
        assert 401 == sandboxes.status_code


def test_a_token_that_is_revoked_opens_nothing_new(world: World) -> None:
    """Also a token that was valid before, within the platform's cache interval."""
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


def metrics(client: httpx.Client) -> dict[str, float]:
    """Metric values by series, as in the text."""
    lines = (line for line in client.get("/metrics").text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_are_those_of_the_token(world: World, ours: httpx.Client) -> None:
    """In the format of Prometheus: of the tenant, and of all tenants for a token that may see the machines."""
    said = ours.get("/metrics")
    assert "text/plain; version=0.0.4; charset=utf-8" == said.headers["content-type"]
    lines = said.text.splitlines()
    assert 'cenote_runtimes{state="lost"} 0.0' in lines
    assert "cenote_ready 1.0" in lines
    assert {"ready", "build_info", "runtimes", "clients"} == {
        line.split()[2].removeprefix("cenote_") for line in lines if line.startswith("# TYPE")
    }
    with world.operator() as client:
        assert 1 == metrics(client)['cenote_node_up{node="local"}']
        kind = client.get("/metrics", headers={"Accept": "application/openmetrics-text"}).headers[
            "content-type"
        ]
        assert kind.startswith("application/openmetrics-text")


def test_what_runs_on_the_platform_is_counted(world: World, ours: httpx.Client, theirs: httpx.Client) -> None:
    """Over all tenants, by outcome; a tenant's own token sees nothing of that."""
    with world.operator() as client:
        # Counts lag behind. Those that show a new runtime have all that other tests did before it was made.
        known = sum(len(tenant.get("/v1/runtimes").json()) for tenant in (ours, theirs))
        ours.put("/v1/runtimes/latest", json={}).raise_for_status()
        until(lambda: metrics(client)['cenote_runtimes{state="ready"}'] == known + 1)
        before = metrics(client)
        for tenant in (ours, theirs):
            tenant.put("/v1/runtimes/counted", json={}).raise_for_status()
            tenant.post("/v1/runtimes/counted/cells", json={"code": "x = 1"}).raise_for_status()
        ours.post("/v1/runtimes/counted/cells", json={"code": "1 / 0"})
        ours.post("/v1/runtimes/counted/forks", json={"name": "branch"}).raise_for_status()
        wanted = {
            'cenote_cells_total{outcome="ok"}': 2,
            'cenote_cells_total{outcome="failed"}': 1,
            "cenote_cell_duration_seconds_count": 3,
            "cenote_forks_total": 1,
            'cenote_runtimes{state="ready"}': 3,
        }

        def more() -> dict[str, float]:
            now = metrics(client)
            return {name: now[name] - before[name] for name in wanted}

        until(lambda: more() == wanted)
        now = metrics(client)
        assert now['cenote_requests_total{outcome="ok"}'] > before['cenote_requests_total{outcome="ok"}']
        assert 0 < now['cenote_state_bytes{part="records"}']
        assert 0 == now['cenote_queue_depth{queue="starts"}']
        assert not [name for name in now if "tenant=" in name]
        for tenant, name in ((ours, "counted"), (theirs, "counted"), (ours, "branch")):
            tenant.delete(f"/v1/runtimes/{name}").raise_for_status()
        ours.delete("/v1/runtimes/latest").raise_for_status()
        until(lambda: metrics(client)['cenote_runtimes{state="ready"}'] == known)


@pytest.mark.parametrize(("name", "value"), [("Host", "evil.example"), ("Origin", "https://evil.example")])
def test_pages_of_other_sites_are_refused(ours: httpx.Client, name: str, value: str) -> None:
    """Also with a valid token."""
    assert ours.get("/v1/runtimes", headers={name: value}).status_code in (400, 403)


def test_a_port_that_is_taken_is_said_before_anything_is_started(tmp_path: Path) -> None:
    """The error names the option that chooses another one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        done = cenote(tmp_path, "up", "--without-ray", "--port", "0", "--http", at)
    assert 4 == done.returncode
    assert f"cannot listen on {at}" in done.stderr
    assert "--http HOST:PORT" in done.stderr
    assert 1 == done.stderr.count("\n")
    assert "no platform runs here" in cenote(tmp_path, "down").stdout


@pytest.mark.slow
def test_tls_is_that_of_grpc(tmp_path: Path) -> None:
    """The platform's own certificate, signed by its authority; there is no answer in the clear."""
    with platform(tmp_path, "--tls") as world, world.client(world.ours) as client:
        assert world.http.startswith("https://127.0.0.1:")
        client.put("/v1/runtimes/etl", json={}).raise_for_status()
        assert "42" == client.post("/v1/runtimes/etl/cells", json={"code": "6 * 7"}).json()["value"]
        with httpx.Client(trust_env=False) as stranger:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                stranger.get(f"{world.http}/healthz")
            with pytest.raises(httpx.HTTPError):
                stranger.get(f"{world.http.replace('https', 'http')}/healthz")


@pytest.mark.slow
def test_tenants_are_labels_where_the_operator_wants_that(tmp_path: Path) -> None:
    """By name, for the number and cost of a tenant's cells."""
    with platform(tmp_path, "--metrics-tenants") as world, world.client(world.ours) as client:
        client.put("/v1/runtimes/etl", json={}).raise_for_status()
        client.post("/v1/runtimes/etl/cells", json={"code": "x = 1"}).raise_for_status()
        with world.operator() as operator:
            until(lambda: metrics(operator).get('cenote_tenant_cells_total{tenant="ours"}') == 1)
            assert 'cenote_tenant_cpu_seconds_total{tenant="ours"}' in metrics(operator)


class Collector(BaseHTTPRequestHandler):
    """Receives spans, like an OpenTelemetry collector."""

    spans: ClassVar[list[Span]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        assert "/v1/traces" == self.path
        self.spans += [
            span for each in request.resource_spans for scope in each.scope_spans for span in scope.spans
        ]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def collector() -> Iterator[str]:
    """Its URL."""
    Collector.spans.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_a_trace_goes_through_http_and_grpc(tmp_path: Path, collector: str) -> None:
    """A client's trace contains the cell and the gateway calls that it took. What a job runs in its own process is a
    separate trace.
    """
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    words = ("--otlp", collector, "--log-json")
    with platform(tmp_path, *words) as world, world.client(world.ours) as client:
        headers = {"traceparent": f"00-{trace}-{parent}-01"}
        client.put("/v1/runtimes/etl", json={}, headers=headers).raise_for_status()
        cell = {"code": "x = 'secret'"}
        client.post("/v1/runtimes/etl/cells", json=cell, headers=headers).raise_for_status()
        jobs = connect(world.address, world.ours).jobs
        job = jobs.submit([{"code": "'secret'"}], sandbox=SandboxPolicy(preload=()))
        assert ["succeeded"] == [result.status for result in job.results(follow=True)]
        until(lambda: "job code" in {_cause(span) for span in Collector.spans})
    spans = {span.name: span for span in Collector.spans if trace == span.trace_id.hex()}
    assert {"execute_tool python", "cenote.gateway create"} <= {*spans}
    assert parent == spans["execute_tool python"].parent_span_id.hex()
    assert parent == spans["cenote.gateway create"].parent_span_id.hex()
    assert "secret" not in str(Collector.spans)
    (log,) = tmp_path.rglob("platform.log")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert "the platform is ready" in [event["event"] for event in events]


@pytest.mark.slow
def test_the_log_of_a_platform_in_the_foreground_is_json_too(tmp_path: Path) -> None:
    """On standard error, for what collects the logs of services."""
    words = ("up", "--foreground", "--without-ray", "--port", "0", "--no-http", "--log-json")
    with subprocess.Popen(
        [*COMMAND, *words],
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        late = threading.Timer(PATIENCE, process.terminate)
        late.start()
        first = process.stderr.readline()
        late.cancel()
        process.terminate()
        events = [json.loads(line)["event"] for line in (first, *process.stderr)]
    assert "the platform is ready" in events


def test_a_platform_in_the_foreground_outlives_the_reader_of_its_output(tmp_path: Path) -> None:
    """As with `| head -1`: it is ready all the same, goes on, and ends in order when it is interrupted."""
    words = ("up", "--foreground", "--without-ray", "--port", "0", "--no-http")
    manager = tmp_path / "manager"
    reading, writing = os.pipe()
    os.close(reading)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(manager))
        listener.settimeout(PATIENCE)
        with subprocess.Popen(
            [*COMMAND, *words],
            env=environment(tmp_path) | {"NOTIFY_SOCKET": str(manager)},
            stdout=writing,
            stderr=subprocess.PIPE,
        ) as process:
            os.close(writing)
            while b"READY=1" not in (said := listener.recv(4096)):
                assert b"STOPPING=1" not in said
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
    assert (0, b"") == (process.returncode, errors)


def _cause(span: Span) -> str:
    return next((each.value.string_value for each in span.attributes if each.key == "cenote.step.cause"), "")


@pytest.mark.slow
def test_it_can_be_left_out(tmp_path: Path) -> None:
    with platform(tmp_path, "--no-http") as world:
        assert "" == world.http


def test_a_port_that_is_taken_is_said_in_one_line_with_both_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as for the default port, which no option asked for. Nothing is started before."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr("cenote.gateway.process.options.HTTP_PORT", taken.getsockname()[1])
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
        ({"otlp": "localhost:4318"}, "a collector is at a URL"),
        ({"otlp": "http://"}, "a collector is at a URL"),
        ({"otlp": "https://key:secret@collector.example"}, "OTEL_EXPORTER_OTLP_HEADERS"),
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
    """On the host of gRPC, on its own port."""
    assert address == PlatformOptions(state=StateFolder(path=tmp_path), **given).http_address
