"""The behaviour tests of runtimes again, on a platform: what a script does must not depend on where it runs.

Tests that inspect this process, its supervisors, descriptors or forks, run only where they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.gateway.world import World
from tests.remote.small_platform import TOKEN, SmallPlatform
from tests.runtime.conftest import make_runtime, runtime
from tests.shared_runtime.conftest import forgetful, gate, good, start

from cenote.runtime import PythonRuntime
from cenote.runtime.remote.address import Destination
from cenote_worker.runtime.runtime import HostedRuntime

__all__ = ["forgetful", "gate", "good", "make_runtime", "runtime", "start"]


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
