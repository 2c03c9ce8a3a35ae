"""The behaviour tests of runtimes again, on a platform: what a script does must not depend on where it runs, or on
the interface that it uses.

Tests that inspect this process, its supervisors, descriptors or forks, run only where they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.http_runtime import HttpRuntime
from tests.doors.http_served import client, served
from tests.gateway.world import World
from tests.remote.small_platform import TOKEN, SmallPlatform
from tests.runtime.conftest import runtime
from tests.shared_runtime.conftest import forgetful, gate, good, start
from tests.waiting import PATIENCE

import cenote
from cenote.doors.callers import OneCaller
from cenote.doors.open_runtimes import OpenRuntimes, PlatformSource
from cenote.runtime import PythonRuntime
from cenote.runtime.remote.address import Destination
from cenote_worker.runtime.runtime import HostedRuntime

__all__ = ["forgetful", "gate", "good", "runtime", "start"]


@dataclass(frozen=True, kw_only=True)
class Where:
    """A platform. hosted: a runtime of it, by id, as this process has it."""

    destination: Destination
    hosted: Callable[[str], HostedRuntime]


@pytest.fixture(scope="session")
def _direct() -> Iterator[Where]:
    """A platform whose clients connect to the servers of their runtimes; one for all tests of this process."""
    platform = SmallPlatform().start()
    yield Where(destination=Destination(platform.address, TOKEN), hosted=lambda id: platform.hosted[id])
    platform.close()


@pytest.fixture(scope="session")
def _relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Where]:
    """A whole platform, whose clients reach their runtimes through its gateway."""
    world = World(Path(tmp_path_factory.mktemp("relayed")), relayed=True)
    destination = Destination(world.address, world.user("tests").token)
    yield Where(destination=destination, hosted=lambda id: world.nodes._hosted[id].runtime)  # type: ignore
    world.close()


@pytest.fixture(scope="session")
def _by_http(_direct: Where) -> Iterator[Callable[..., HttpRuntime]]:
    """Makes runtimes over an HTTP server in front of the platform."""
    there = cenote.connect(_direct.destination.address, TOKEN)
    numbers = count()
    with (
        served(OneCaller(TOKEN, OpenRuntimes(PlatformSource(there)))) as base,
        client(base, TOKEN, timeout=PATIENCE) as http,
    ):
        yield lambda **arguments: HttpRuntime(http, f"by-http-{next(numbers)}", **arguments)


@pytest.fixture
def make_runtime(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes runtimes that are closed after the test; over HTTP in files whose names say so."""
    is_http = request.path.name.startswith("test_http")
    make = request.getfixturevalue("_by_http") if is_http else PythonRuntime
    made: list[Any] = []

    def made_one(**arguments: Any) -> Any:
        made.append(make(**arguments))
        return made[-1]

    yield made_one
    for each in made:
        each.close()


@pytest.fixture(autouse=True)
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Where:
    """As users do: the script stays unchanged, the environment selects where it runs."""
    where: Where = request.getfixturevalue("_relayed" if "relayed" in request.path.name else "_direct")
    monkeypatch.setenv("CENOTE_ADDRESS", where.destination.address)
    monkeypatch.setenv("CENOTE_TOKEN", where.destination.token)
    return where


@pytest.fixture
def hosted(runtime: PythonRuntime, platform: Where) -> HostedRuntime:
    """The runtime as its host has it."""
    runtime.core.start()
    return platform.hosted(runtime.core.backend._id)  # type: ignore[attr-defined]


@pytest.fixture
def waiting(hosted: HostedRuntime) -> Callable[[], int]:
    """How many requests wait for the jail."""
    return lambda: 0 if hosted.supervisor is None else len(hosted.supervisor._work.waiting)
