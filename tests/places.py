"""Where the runtimes of a test are: in its own process, or on a platform that the environment names.

A test says with `@pytest.mark.at("embedded", "platform")` at which of `PLACES` it runs (`tests/variants.py`). What a
script does must not depend on where it runs, or on the interface that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # at run time in the fixtures: most tests need none of it
    from cenote.runtime.remote.address import Destination
    from cenote_worker.runtime.runtime import HostedRuntime

EMBEDDED = "embedded"

PLACES = {
    EMBEDDED: "in the test's own process",
    "platform": "on a platform whose clients connect to the servers of their runtimes",
    "relayed": "on a whole platform, whose clients reach their runtimes through its gateway",
    "http": "on a platform, through the HTTP interface in front of it",
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """make: makes a runtime, which its caller closes. hosted: a runtime as its host has it."""

    name: str
    make: Callable[..., Any]
    hosted: Callable[[Any], HostedRuntime]
    destination: Destination | None = None

    @property
    def is_embedded(self) -> bool:
        return self.name == EMBEDDED


@dataclass(frozen=True, kw_only=True)
class _Platform:
    destination: Destination
    hosted: Callable[[str], HostedRuntime]

    def hosted_by(self, runtime: Any) -> HostedRuntime:
        runtime.core.start()
        return self.hosted(runtime.core.backend._id)


@pytest.fixture(scope="session")
def _direct() -> Iterator[_Platform]:
    """One for all tests of this process."""
    from tests.support.remote.small_platform import TOKEN, SmallPlatform

    from cenote.runtime.remote.address import Destination

    platform = SmallPlatform().start()
    yield _Platform(destination=Destination(platform.address, TOKEN), hosted=lambda id: platform.hosted[id])
    platform.close()


@pytest.fixture(scope="session")
def _relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Platform]:
    """One for all tests of this process."""
    from tests.support.gateway.world import World

    from cenote.runtime.remote.address import Destination

    world = World(Path(tmp_path_factory.mktemp("relayed")), relayed=True)
    destination = Destination(world.address, world.user("tests").token)
    yield _Platform(destination=destination, hosted=lambda id: world.nodes._hosted[id].runtime)  # type: ignore
    world.close()


@pytest.fixture(scope="session")
def _by_http(_direct: _Platform) -> Iterator[Callable[..., Any]]:
    """Makes runtimes over an HTTP server in front of the platform."""
    from tests.support.doors.http_runtime import HttpRuntime
    from tests.support.doors.http_served import client, served
    from tests.waiting import PATIENCE

    import cenote
    from cenote.doors.callers import OneCaller
    from cenote.doors.open_runtimes import OpenRuntimes, PlatformSource

    token = _direct.destination.token
    there = cenote.connect(_direct.destination.address, token)
    numbers = count()
    with (
        served(OneCaller(token, OpenRuntimes(PlatformSource(there)))) as base,
        client(base, token, timeout=PATIENCE) as http,
    ):
        yield lambda **arguments: HttpRuntime(http, f"by-http-{next(numbers)}", **arguments)


@pytest.fixture
def where(request: pytest.FixtureRequest) -> Place:
    """As users do: the script stays unchanged, the environment selects where it runs."""
    from cenote.runtime import PythonRuntime

    name = getattr(request, "param", EMBEDDED)
    if name == EMBEDDED:
        return Place(name=name, make=PythonRuntime, hosted=_hosted_here)
    platform: _Platform = request.getfixturevalue("_relayed" if name == "relayed" else "_direct")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setenv("CENOTE_ADDRESS", platform.destination.address)
    monkeypatch.setenv("CENOTE_TOKEN", platform.destination.token)
    make = request.getfixturevalue("_by_http") if name == "http" else PythonRuntime
    return Place(name=name, make=make, hosted=platform.hosted_by, destination=platform.destination)


def _hosted_here(runtime: Any) -> HostedRuntime:
    from cenote_worker.runtime.runtime import HostedRuntime

    assert isinstance(runtime.core.backend, HostedRuntime)
    return runtime.core.backend
