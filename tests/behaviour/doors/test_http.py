"""Runtimes over HTTP: the result of each operation, and the handling of bad input."""

from __future__ import annotations

import ast
import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.support.doors.http_served import client, served

from cenote import SandboxPolicy
from cenote.doors import http_api, http_models, request_checks
from cenote.doors.callers import OneCaller
from cenote.doors.http_app import openapi
from cenote.doors.open_runtimes import LocalSource, OpenRuntimes
from cenote.doors.request_checks import ServerNames
from cenote_security.errors import (
    CallTimeoutError,
    CenoteError,
    EntryExistsError,
    FileTakenError,
    NameExistsError,
    RuntimeClosedError,
    RuntimeExpiredError,
    RuntimeLostError,
    UnavailableError,
    UnknownReferenceError,
    UsageError,
)

TOKEN = "a token of this test"


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    runtimes = OpenRuntimes(LocalSource(SandboxPolicy(preload=("pandas",))))
    with served(OneCaller(TOKEN, runtimes)) as base:
        yield base


@pytest.fixture(scope="module")
def http(base: str) -> Iterator[httpx.Client]:
    with client(base, TOKEN) as http:
        yield http


class Runtime:
    """One runtime, by its path."""

    def __init__(self, http: httpx.Client, name: str) -> None:
        self._http = http
        self.path = f"/v1/runtimes/{name}"
        self.put("", {})

    def call(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        answer = self._http.request(method, self.path + path, **more)
        assert answer.status_code == status, answer.text
        is_json = answer.headers.get("content-type") == "application/json"
        return answer.json() if is_json else answer.content

    def get(self, path: str, status: int = 200, **more: Any) -> Any:
        return self.call("GET", path, status, **more)

    def put(self, path: str, body: object, status: int = 200) -> Any:
        return self.call("PUT", path, status, json=body)

    def post(self, path: str, body: object = None, status: int = 200) -> Any:
        return self.call("POST", path, status, json=body if body is not None else {})

    def run(self, code: str, **more: object) -> Any:
        return self.post("/cells", {"code": code, **more})


@pytest.fixture
def runtime(http: httpx.Client, request: pytest.FixtureRequest) -> Iterator[Runtime]:
    made = Runtime(http, request.node.name.partition("[")[0][:60])
    yield made
    made.call("DELETE", "", 204)


def test_environments_are_a_platforms(http: httpx.Client) -> None:
    answer = http.get("/v1/environments")
    assert 400 == answer.status_code
    assert "`cenote up` starts a platform" in answer.text


# -- cells --


def test_a_cell_and_its_result(runtime: Runtime) -> None:
    found = runtime.run("import sys\nprint('out'); print('err', file=sys.stderr)\n6 * 7")
    assert (found["success"], found["stdout"], found["stderr"], found["value"]) == (
        True,
        "out\n",
        "err\n",
        "42",
    )
    failed = runtime.run("1/0")
    assert (failed["success"], failed["error"]["type"], failed["state"]) == (
        False,
        "ZeroDivisionError",
        "kept",
    )
    assert runtime.run("x = 1\n1/0", on_error="rollback")["state"] == "rolled_back"


@pytest.mark.slow
def test_pictures_are_base64(runtime: Runtime) -> None:
    found = runtime.run("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()")
    assert base64.b64decode(found["outputs"][0]["image/png"]).startswith(b"\x89PNG")


def test_output_comes_while_the_cell_runs(runtime: Runtime, http: httpx.Client) -> None:
    """As NDJSON: the first line arrives while the cell waits for a file that is written after it."""
    code = "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n'last'"
    wanted = {"Accept": http_api.NDJSON}
    with http.stream("POST", f"{runtime.path}/cells", json={"code": code}, headers=wanted) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"type": "stdout", "data": "first\n"}
        runtime.post("/programs", {"command": ["touch", "go"]})
        result = json.loads(next(lines))
    assert (result["type"], result["data"]["value"]) == ("result", "'last'")


def test_output_as_server_sent_events(runtime: Runtime, http: httpx.Client) -> None:
    answer = http.post(
        f"{runtime.path}/cells", json={"code": "print(1)"}, headers={"Accept": http_api.EVENTS}
    )
    assert answer.headers["content-type"].startswith(http_api.EVENTS)
    first, second, rest = answer.text.split("\n\n")
    assert first == 'event: stdout\ndata: "1\\n"'
    assert second.startswith('event: result\ndata: {"success":true')
    assert rest == ""


def test_a_client_that_leaves_interrupts_its_cell(runtime: Runtime, http: httpx.Client) -> None:
    """Whether it reads a stream or waits for a result; what the cell had done by then stays."""
    code = "import time\nkept = 1\nprint('on', flush=True)\nwhile True: time.sleep(0.01)"
    wanted = {"Accept": http_api.NDJSON}
    with http.stream("POST", f"{runtime.path}/cells", json={"code": code}, headers=wanted) as answer:
        next(answer.iter_lines())
    assert runtime.run("kept")["value"] == "1"
    with pytest.raises(httpx.ReadTimeout):
        http.post(f"{runtime.path}/cells", json={"code": code}, timeout=0.5)
    assert runtime.run("kept")["value"] == "1"


def test_a_cell_is_interrupted_by_another_request(runtime: Runtime, http: httpx.Client) -> None:
    code = "import time\nprint('on', flush=True)\nwhile True: time.sleep(0.01)"
    wanted = {"Accept": http_api.NDJSON}
    with http.stream("POST", f"{runtime.path}/cells", json={"code": code}, headers=wanted) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert runtime.post("/interrupt") == {"interrupted": True}
        result = json.loads(next(lines))["data"]
    assert result["error"]["reason"] == "interrupt"


def test_a_slow_reader_costs_no_memory_and_gets_the_result(
    runtime: Runtime, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_models, "MOST_QUEUED", 100)
    code = "for _ in range(50): print('x' * 99, flush=True)"
    answer = http.post(f"{runtime.path}/cells", json={"code": code}, headers={"Accept": http_api.NDJSON})
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert events[-1]["data"]["stdout"].count("x") == 50 * 99
    printed = "".join(event["data"] for event in events if event["type"] == "stdout")
    lost = sum(int(event["data"].split()[0]) for event in events if event["type"] == "dropped")
    assert len(printed) + lost == 50 * 100


# -- programs, variables, files --


def test_a_program_beside_the_namespace(runtime: Runtime) -> None:
    found = runtime.post(
        "/programs", {"command": "cat; echo $NAME >&2; exit 3", "stdin": "in", "env": {"NAME": "n"}}
    )
    assert (found["exit_code"], found["stdout"], found["stderr"]) == (3, "in", "n\n")
    assert runtime.post("/programs", {"command": ["sleep", "30"], "timeout": 0.2})["timed_out"]


def test_variables_as_json(runtime: Runtime) -> None:
    value = {"numbers": [1, 2.5, None], "text": "ä"}
    for _ in range(2):
        runtime.put("/variables/given", value, 204)
    assert runtime.run("given['numbers'][1]")["value"] == "2.5"
    assert runtime.get("/variables/given") == value
    assert [one["name"] for one in runtime.get("/variables")] == ["given"]
    runtime.run("odd = object()")
    assert "odd" in runtime.get("/variables/odd", 400)["error"]["message"]
    runtime.call("DELETE", "/variables/given", 204)
    runtime.get("/variables/given", 404)
    runtime.put("/variables/not a name", 1, 400)


def test_a_frame_as_arrow(runtime: Runtime) -> None:
    runtime.run("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})")
    data = runtime.get("/variables/df", headers={"Accept": http_api.ARROW})
    assert pa.ipc.open_stream(data).read_all().to_pydict() == {"a": [1, 2]}


def test_a_variable_is_handed_to_another_runtime(runtime: Runtime, http: httpx.Client) -> None:
    runtime.run("data = list(range(5))")
    other = Runtime(http, "taker")
    runtime.post("/variables/data/share", {"to": "taker", "name": "got"}, 204)
    assert other.run("got")["value"] == "[0, 1, 2, 3, 4]"
    runtime.post("/variables/data/share", {"to": "nobody"}, 404)


@pytest.mark.slow
def test_files(runtime: Runtime) -> None:
    data = bytes(range(256)) * 100
    runtime.call("PUT", "/files/d/a%20b.bin", 204, content=data)
    assert runtime.get("/files/d/a%20b.bin") == data
    (entry,) = runtime.get("/files?path=d")
    assert (entry["name"], entry["kind"], entry["size"]) == ("a b.bin", "file", len(data))
    runtime.call("DELETE", "/files/d/a%20b.bin", 204)
    runtime.get("/files/d/a%20b.bin", 404)


def test_a_name_of_several_lines_is_a_name(runtime: Runtime) -> None:
    for name in ("two%0Alines.txt", "d/ends%0A"):
        runtime.call("PUT", f"/files/{name}", 204, content=b"x")
        assert runtime.get(f"/files/{name}") == b"x"
    assert "two\nlines.txt" in [entry["name"] for entry in runtime.get("/files")]
    runtime.call("DELETE", "/files/two%0Alines.txt", 204)


@pytest.mark.parametrize("body", [b"NaN", b"[1, -Infinity]", b'{"a": NaN'])
def test_a_number_that_json_does_not_have_is_refused(runtime: Runtime, body: bytes) -> None:
    """A value that could be set could not be read again."""
    answer = runtime.call("PUT", "/variables/odd", 400, content=body)
    assert "JSON" in answer["error"]["message"]
    runtime.call("PUT", "/variables/odd", 204, content=b'"NaN and Infinity are words"')
    assert runtime.get("/variables/odd") == "NaN and Infinity are words"


def test_a_path_means_what_it_means_in_the_jail(runtime: Runtime, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of this machine")
    for path in (f"/files/{secret}", f"/files/..%2f..{secret}", "/files/..%2f..%2fetc/passwd"):
        answer = runtime._http.request("GET", runtime.path + path)
        assert answer.status_code in (400, 404)
    assert runtime.get("/files//etc/passwd").decode() == ast.literal_eval(
        runtime.run("open('/etc/passwd').read()")["value"]
    )


# -- states --


def test_snapshots_rollback_forks_and_merges(runtime: Runtime, http: httpx.Client) -> None:
    runtime.run("n = [1]")
    assert runtime.post("/snapshots", {"label": "good"})["step"] == 1
    runtime.run("n.append(2)")
    assert "good" in [one["label"] for one in runtime.get("/snapshots")]
    assert runtime.post("/rollback", {"to": "good"})["step"] == 1
    assert runtime.run("str(n)")["value"] == "'[1]'"
    runtime.post("/forks", {"name": "branch"})
    branch = "/v1/runtimes/branch"
    http.post(f"{branch}/cells", json={"code": "n.append(7)"})
    assert runtime.post("/merges", {"branch": "branch"})["taken"] == ["n"]
    assert runtime.run("n")["value"] == "[1, 7]"
    assert http.delete(branch).status_code == 204
    assert "77" in runtime.post("/rollback", {"to": 77}, 400)["error"]["message"]


def test_the_record_and_a_patch_of_it(runtime: Runtime) -> None:
    for code in ("a = 1", "b = a + 1", "c = 'apart'"):
        runtime.run(code)
    steps = runtime.get("/steps")
    assert [(step["number"], step["author"], step["writes"]) for step in steps] == [
        (1, "http", ["a"]), (2, "http", ["b"]), (3, "http", ["c"])
    ]  # fmt: skip
    assert {"source": 1, "target": 2, "kind": "data", "symbols": ["a"]} in runtime.get("/graph")["edges"]
    plan = runtime.post("/patches", {"step": 1, "code": "a = 5"})
    assert (plan["status"], plan["steps_rerun"]) == ("planned", [1, 2])
    done = runtime.post("/patches", {"step": 1, "code": "a = 5", "apply": True})
    assert (done["status"], done["steps_rerun"], done["steps_reused"]) == ("applied", [1, 2], [3])
    assert runtime.get("/variables/b") == 6


# -- who may, and what is refused --


@pytest.mark.sweep
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", "Basic YTpi", f"Bearer {TOKEN}x", "Bearer \u00e4"]
)
@pytest.mark.parametrize("path", ["/v1/runtimes", "/mcp"])
def test_without_a_good_token_nothing_is_said(base: str, header: str | None, path: str) -> None:
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    answer = httpx.get(base + path, headers=headers, trust_env=False)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["error"]["type"] == "NotAuthenticatedError"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 400),
        ({"Host": "localhost.evil.example:8480"}, 400),
        ({"Host": "[::1].evil.example"}, 400),
        ({"Host": "[::2]:8480"}, 400),
        ({"Host": "[::1"}, 400),
        ({"Host": "::1"}, 400),
        ({"Host": "user@localhost"}, 400),
        ({"Host": "localhost:port"}, 400),
        ({"Host": "localhost:99999"}, 400),
        ({"Host": "localhost:+80"}, 400),
        ({"Host": "localhost/evil.example"}, 400),
        ({"Host": "localhost?.evil.example"}, 400),
        ({"Host": "localhost#.evil.example"}, 400),
        ({"Host": "localhost\\.evil.example"}, 400),
        ({"Host": "http://localhost"}, 400),
        ({"Host": "localhost, evil.example"}, 400),
        ({"Host": "localhost.."}, 400),
        ({"Host": "[127.0.0.1]"}, 400),
        ({"Host": "[::1%25lo]"}, 400),
        ({"Host": "0.0.0.0:8480"}, 400),
        ({"Host": "127.1"}, 400),
        ({"Host": "evil.example", "X-Forwarded-Host": "localhost"}, 400),
        ({"Host": "localhost:"}, 200),
        ({"Host": ""}, 400),
        ({"Host": "[::1]:8480"}, 200),
        ({"Host": "[::1]"}, 200),
        ({"Host": "[0:0:0:0:0:0:0:1]:8480"}, 200),
        ({"Host": "LocalHost:8480"}, 200),
        ({"Host": "localhost.:8480"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "localhost"}, 403),
        ({"Origin": "file://"}, 403),
        ({"Origin": "chrome-extension://localhost"}, 403),
        ({"Origin": "http://localhost@evil.example"}, 403),
        ({"Origin": "http://localhost/"}, 403),
        ({"Origin": "http://[half"}, 403),
        ({"Origin": "http://localhost:8480"}, 200),
        ({"Origin": "http://[::1]:8480"}, 200),
        ({"Origin": "http://[0:0:0:0:0:0:0:1]:8480"}, 200),
        ({"Origin": "http://[::2]:8480"}, 403),
        ({}, 200),
    ],
)
def test_pages_of_other_sites_reach_nothing(http: httpx.Client, headers: dict[str, str], status: int) -> None:
    answer = http.get("/v1/runtimes", headers=headers)
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers
    if status != 200:
        assert answer.json()["error"]["type"] == "RejectedError"


@pytest.mark.parametrize(
    ("names", "given", "is_ours"),
    [
        (["fd00::1"], "fd00::1", True),  # as a certificate and --name say it
        (["[fd00::1]"], "[fd00:0::1]", True),
        (["*.example.com"], "a.example.com", True),
        (["*.example.com"], "example.com", False),
        (["*.example.com"], "a.b.example.com", True),
        (["*.example.com"], "evil-example.com", False),
        (["w*.example.com"], "web.example.com", False),  # what no browser accepts
        (["*"], "evil.example", False),
        (["Host.Example"], "host.example", True),
        (["0.0.0.0", "::", "[::]"], "0.0.0.0", False),
        (["0.0.0.0", "::", "[::]"], "[0::0]", False),
    ],
)
def test_names_of_a_server(names: list[str], given: str, is_ours: bool) -> None:
    assert ServerNames(names).have(given) is is_ours


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "Invalid JSON"),
        (b"[]", "the body: Input should be an object"),
        (b"{}", "code: Field required"),
        (b'{"code": 1, "timeout": -1, "more": 2}', "code: Input should be a valid string; timeout: "),
        (b"\xff\xfe", "Invalid JSON"),
        (b'{"code": "' + b"[" * 10_000, "Invalid JSON"),
    ],
)
def test_all_that_is_wrong_with_a_body_is_named(runtime: Runtime, body: bytes, said: str) -> None:
    error = runtime.call("POST", "/cells", 400, content=body)["error"]
    assert said in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/v1/runtimes/any", "DELETE, PUT"),
        ("GET", "/v1/runtimes/any/cells", "POST"),
        ("POST", "/v1/runtimes/any/variables/x", "DELETE, GET, HEAD, PUT"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ],
)
def test_a_wrong_method_names_all_that_there_are(
    http: httpx.Client, method: str, path: str, allowed: str
) -> None:
    answer = http.request(method, path)
    assert (405, allowed) == (answer.status_code, answer.headers["allow"])
    said = f"{method} is not for {path!r}, {allowed} are; see /openapi.json"
    assert {"error": {"type": "UsageError", "message": said}} == answer.json()


def test_an_unknown_path_is_an_error_in_the_form_of_all_others(http: httpx.Client) -> None:
    answer = http.get("/v1/runtime")
    said = "nothing is at '/v1/runtime'; see /openapi.json"
    assert (404, {"error": {"type": "UnknownPathError", "message": said}}) == (
        answer.status_code,
        answer.json(),
    )


def test_no_body_is_no_value(runtime: Runtime) -> None:
    """Where a body has options, an empty one is none of them."""
    runtime.call("PUT", "", 200, content=b"")
    error = runtime.call("PUT", "/variables/x", 400, content=b"")["error"]
    assert "EOF" in error["message"]
    assert runtime.get("/variables") == []


def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_api, "MOST_JSON", 1_000)
    monkeypatch.setattr(http_api, "MOST_FILE", 1_000)
    runtime.call("POST", "/cells", 413, content=b'{"code": "' + b"x" * 2_000 + b'"}')
    runtime.call("PUT", "/files/large", 413, content=b"x" * 2_000)
    runtime.get("/files/large", 404)


def test_wrong_policies_and_names(http: httpx.Client) -> None:
    wrong = http.put("/v1/runtimes/bad", json={"policy": {"memory": "1MiB", "processes": 0, "nonsense": 1}})
    assert wrong.status_code == 400
    assert all(name in wrong.json()["error"]["message"] for name in ("memory", "processes", "nonsense"))
    assert http.put(f"/v1/runtimes/{'x' * 101}", json={}).status_code == 400
    assert http.post("/v1/runtimes/nobody/cells", json={"code": "1"}).status_code == 404
    assert http.get("/v1/nothing").status_code == 404


def test_a_runtime_whose_cells_are_checked_first(http: httpx.Client) -> None:
    assert http.put("/v1/runtimes/checked", json={"policy": {"check_first": True}}).status_code == 200
    found = http.post("/v1/runtimes/checked/cells", json={"code": "print('ran')\nmissing"}).json()
    assert (found["stdout"], found["error"]["type"], found["verdict"]) == ("", "NameError", "task")
    assert "nothing of this cell has run" in found["error"]["traceback"]
    assert http.delete("/v1/runtimes/checked").status_code == 204


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        {"isolation": "none"},
        {"mounts": [{"source": "/etc"}]},
        {"memory": "64GiB"},
        {"network": {"destinations": ["pypi.org"]}},
        {"cell_timeout": None, "processes": 4_000_000},
    ],
)
def test_no_client_gets_more_than_its_server_allows(http: httpx.Client, policy: dict[str, Any]) -> None:
    answer = http.put("/v1/runtimes/wider", json={"policy": policy})
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "WiderPolicyError"), answer.text
    assert "start the server with more" in answer.json()["error"]["message"]
    assert (
        http.put("/v1/runtimes/tighter", json={"policy": {"memory": "256MiB", "preload": []}}).status_code
        == 200
    )
    assert http.delete("/v1/runtimes/tighter").status_code == 204


def test_half_a_request_costs_nothing(base: str, http: httpx.Client) -> None:
    """A client that disconnects in the middle of its headers or its body."""
    address = urlsplit(base)
    for part in (
        b"POST /v1/run",
        b"POST /v1/runtimes/x/cells HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
    ):
        with socket.create_connection((address.hostname, address.port)) as line:
            line.sendall(part)
    assert http.get("/healthz").status_code == 200


def test_the_document_describes_every_operation() -> None:
    document = openapi()
    operations = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert sorted(operations) == sorted(operation.name for operation in http_api.OPERATIONS)
    text = json.dumps(document)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"]


def test_the_document_is_valid_for_generators(http: httpx.Client) -> None:
    """By the schema of OpenAPI 3.1. A policy has its options, a cell its streams, a folder its parameter."""
    document = http.get("/openapi.json").json()
    OpenAPIV31SpecValidator(document).validate()
    policy = document["components"]["schemas"]["SandboxPolicy"]
    assert {each.name for each in fields(SandboxPolicy)} == policy["properties"].keys()
    cells = document["paths"]["/v1/runtimes/{runtime}/cells"]["post"]["responses"]["200"]["content"]
    assert {"application/json", "application/x-ndjson", "text/event-stream"} == cells.keys()
    files = document["paths"]["/v1/runtimes/{runtime}/files"]["get"]["parameters"]
    assert ["runtime", "path"] == [each["name"] for each in files]


# -- two doors --


async def test_mcp_and_http_work_in_one_runtime(base: str) -> None:
    with client(base, TOKEN) as http:
        runtime = Runtime(http, "both")
        runtime.run("shared = [1]")
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            create_mcp_http_client(headers=headers) as line,
            Client(streamable_http_client(f"{base}/mcp", http_client=line)) as mcp,
        ):
            found = await mcp.call_tool("run", {"runtime": "both", "code": "shared.append(2)\nshared"})
            assert found.content[0].text == "[1, 2]"  # type: ignore[union-attr]
        assert [(step["author"], step["code"]) for step in runtime.get("/steps")] == [
            ("http", "shared = [1]"), ("mcp", "shared.append(2)\nshared")
        ]  # fmt: skip
        runtime.post("/rollback", {"to": 1})
        assert runtime.get("/variables/shared") == [1]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeLostError("its machine is gone"), 410),
        (RuntimeClosedError("this runtime is closed"), 410),
        (RuntimeExpiredError(60), 410),
        (NameExistsError("x"), 409),
        (EntryExistsError("runtime", "a"), 409),
        (FileTakenError("a.txt"), 409),
        (UnknownReferenceError("r-1"), 404),
        (CallTimeoutError(3), 504),
        (UnavailableError("the store is away"), 503),
        (UsageError("there is no step 77"), 400),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_is_gone_or_taken_has_a_status_of_its_own(error: CenoteError, status: int) -> None:
    """A client can tell what to create again, name differently, or retry."""
    assert request_checks.status_of(error) == status
