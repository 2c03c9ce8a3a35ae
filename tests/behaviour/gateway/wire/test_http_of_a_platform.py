"""HTTP in front of a platform: its tokens, its tenants, its runtimes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from tests.support.doors.http_served import client, served
from tests.support.gateway.world import BARE, User, World

from cenote.connection import Platform
from cenote.doors.callers import PlatformCallers
from cenote.doors.open_runtimes import OpenRuntimes, PlatformSource
from cenote.runtime.remote.address import Destination


@pytest.fixture
def doors(world: World) -> Iterator[tuple[httpx.Client, httpx.Client, User]]:
    """Two tenants over HTTP, and the first one over gRPC."""
    acme, rival = world.user("acme"), world.user("rival")
    callers = PlatformCallers(
        lambda token: Platform(Destination(acme.address, token)),
        lambda platform: OpenRuntimes(PlatformSource(platform, BARE)),
    )
    with (
        served(callers, replace(BARE, memory="1GiB")) as base,
        client(base, acme.token) as first,
        client(base, rival.token) as second,
    ):
        yield first, second, acme


def test_tenants_have_their_own_runtimes(doors: tuple[httpx.Client, httpx.Client, User]) -> None:
    acme, rival, by_grpc = doors
    assert acme.put("/v1/runtimes/etl", json={}).status_code == 200
    assert acme.post("/v1/runtimes/etl/cells", json={"code": "x = 'theirs'"}).json()["success"]
    assert [one["name"] for one in acme.get("/v1/runtimes").json()] == ["etl"]
    assert rival.get("/v1/runtimes").json() == []
    assert rival.post("/v1/runtimes/etl/cells", json={"code": "x"}).status_code == 404
    assert rival.delete("/v1/runtimes/etl").status_code == 404
    assert by_grpc.names() == ["etl"]


def test_a_runtime_that_was_made_elsewhere_is_joined_by_its_name(
    doors: tuple[httpx.Client, httpx.Client, User],
) -> None:
    acme, _, by_grpc = doors
    line = by_grpc.line(by_grpc.create("made"))
    line.welcome()
    assert line.run("x = [1]").success
    assert acme.post("/v1/runtimes/made/cells", json={"code": "x.append(2)\nx"}).json()["value"] == "[1, 2]"
    assert acme.delete("/v1/runtimes/made").status_code == 204
    assert by_grpc.names() == []


def test_a_fork_with_a_taken_name(doors: tuple[httpx.Client, httpx.Client, User]) -> None:
    """It is a conflict, also with a runtime that was made elsewhere: the client can choose another name."""
    acme, _, by_grpc = doors
    by_grpc.create("made")
    for name in ("etl", "open"):
        assert acme.put(f"/v1/runtimes/{name}", json={}).status_code == 200
    for taken in ("open", "made"):
        answer = acme.post("/v1/runtimes/etl/forks", json={"name": taken})
        assert answer.status_code == 409, answer.text
        assert answer.json()["error"]["type"] == "EntryExistsError", answer.text


def test_tokens_that_are_none_of_the_platform(doors: tuple[httpx.Client, httpx.Client, User]) -> None:
    acme, _, _ = doors
    for token in ("nonsense", "cenote_" + "0" * 32 + "_" + "0" * 64 + "_00000000"):
        answer = acme.get("/v1/runtimes", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401


def test_sandboxes_end_with_their_server(world: World) -> None:
    """Only the server knows when each one expires. Runtimes that were created by name stay."""
    acme = world.user("acme")
    callers = PlatformCallers(
        lambda token: Platform(Destination(acme.address, token)),
        lambda platform: OpenRuntimes(PlatformSource(platform, BARE)),
    )
    with served(callers, BARE) as base, client(base, acme.token) as http:
        made = http.post("/v2/sandboxes", json={"templateID": "base"}).json()["sandboxID"]
        assert http.post(f"/sandboxes/{made}/snapshots", json={}).status_code == 201
        assert http.put("/v1/runtimes/stays", json={}).status_code == 200
        assert len(acme.names()) == 3
    assert acme.names() == ["stays"]


@pytest.mark.slow
async def test_one_frame_is_worked_on_by_all_doors(doors: tuple[httpx.Client, httpx.Client, User]) -> None:
    """E2B, HTTP, MCP and gRPC share one namespace: no copy of the frame, one record, one state to return to."""
    acme, _, by_grpc = doors
    made = acme.post("/v2/sandboxes", json={"templateID": "base"}).json()
    name, secret = made["sandboxID"], made["envdAccessToken"]
    code = "import pandas as pd\ndf = pd.DataFrame({'a': range(1_000_000)})\nplace = id(df)"
    ports = {"E2b-Sandbox-Id": name, "X-Access-Token": secret}
    assert acme.post("/execute", json={"code": code}, headers=ports).status_code == 200
    by_http = acme.post(f"/v1/runtimes/{name}/cells", json={"code": "df['b'] = 1\nid(df) == place"}).json()
    assert by_http["value"] == "True"
    async with (
        create_mcp_http_client(headers=dict(acme.headers)) as line,
        Client(streamable_http_client(f"{acme.base_url}/mcp", http_client=line)) as mcp,
    ):
        found = await mcp.call_tool("run", {"runtime": name, "code": "df['c'] = 2\nid(df) == place"})
    assert found.content[0].text == "True"  # type: ignore[union-attr]
    runtime = Platform(Destination(by_grpc.address, by_grpc.token)).runtime(name)
    assert runtime.execute("df['d'] = 3\nid(df) == place, list(df)").value == "(True, ['a', 'b', 'c', 'd'])"
    steps = acme.get(f"/v1/runtimes/{name}/steps").json()
    assert [step["author"] for step in steps] == ["e2b", "http", "mcp", ""]
    assert acme.post(f"/v1/runtimes/{name}/rollback", json={"to": 2}).json()["step"] == 2
    assert runtime.execute("list(df)").value == "['a', 'b']"
    runtime.close()
