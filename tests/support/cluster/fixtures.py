"""One running platform for all tests of this folder, because starting and ending one is slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cluster.standing import StandingPlatform, living_in
from tests.waiting import until

from cenote.gateway.process.restart_policy import MAX_RESTARTS

STANDING = pytest.StashKey[StandingPlatform]()


@pytest.fixture
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StandingPlatform:
    """The platform ends after the last test of this folder, not with the test process, which continues with other
    folders.

    A platform that tests have killed so often that its restarts are nearly used up is replaced.
    """
    folder = next(each for each in request.node.listchain() if each.name == "cluster")
    standing = folder.stash.get(STANDING, None)
    if standing is not None and standing.restarts > MAX_RESTARTS - 3:
        end(standing)
        standing = None
    if standing is None:
        if STANDING not in folder.stash:
            folder.addfinalizer(lambda: end(folder.stash[STANDING]))
        standing = folder.stash[STANDING] = StandingPlatform(tmp_path_factory.mktemp("standing"))
        standing.up()
    return standing


def end(standing: StandingPlatform) -> None:
    """Ends the platform and checks that nothing of it is left."""
    session, folder, descriptor_store = (
        standing.cluster["pid"],
        standing.cluster["folder"],
        standing.descriptor_store,
    )
    standing.command("down")
    until(lambda: not living_in(session) and not Path(f"/proc/{descriptor_store}").exists())
    assert not Path(str(folder)).exists()
