"""The behaviour tests of runtimes once more, on a platform: what a script does must not depend on where it runs.

What looks into this process, at supervisors, descriptors or forks, is tested where it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gateway.world import World
from tests.remote.small_platform import TOKEN, SmallPlatform
from tests.runtime.conftest import make_runtime, runtime

from cenote.runtime.remote.address import Destination

__all__ = ["make_runtime", "runtime"]


@pytest.fixture(scope="session")
def _direct() -> Iterator[Destination]:
    """A platform whose clients go to the servers of their runtimes; one for all tests of this process."""
    platform = SmallPlatform().start()
    yield Destination(platform.address, TOKEN)
    platform.close()


@pytest.fixture(scope="session")
def _relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Destination]:
    """A whole platform, whose clients reach their runtimes through its gateway."""
    world = World(Path(tmp_path_factory.mktemp("relayed")), relayed=True)
    yield Destination(world.address, world.user("tests").token)
    world.close()


@pytest.fixture(autouse=True)
def _on_a_platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users do it: the script stays as it is, the environment says where it runs."""
    relayed = "relayed" in request.path.name
    destination = request.getfixturevalue("_relayed" if relayed else "_direct")
    monkeypatch.setenv("CENOTE_ADDRESS", destination.address)
    monkeypatch.setenv("CENOTE_TOKEN", destination.token)
