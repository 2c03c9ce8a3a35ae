"""HTTP in front of a platform: its tokens, its tenants, its runtimes."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.doors.http_served import client, served
from tests.gateway.world import BARE, User, World

from cenote.connection import Platform
from cenote.doors.callers import PlatformCallers
from cenote.doors.open_runtimes import OpenRuntimes, PlatformSource
from cenote.runtime.remote.address import Destination


@pytest.fixture
def doors(world: World) -> Iterator[tuple[httpx.Client, httpx.Client, User]]:
    """Two tenants by HTTP, and the first one by gRPC."""
    acme, rival = world.user("acme"), world.user("rival")
    callers = PlatformCallers(
        lambda token: Platform(Destination(acme.address, token)),
        lambda platform: OpenRuntimes(PlatformSource(platform, BARE)),
    )
    with served(callers) as base, client(base, acme.token) as first, client(base, rival.token) as second:
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


def test_tokens_that_are_none_of_the_platform(doors: tuple[httpx.Client, httpx.Client, User]) -> None:
    acme, _, _ = doors
    for token in ("nonsense", "cenote_" + "0" * 32 + "_" + "0" * 64 + "_00000000"):
        answer = acme.get("/v1/runtimes", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401
