"""One standing platform for all tests of this folder: starting and ending it takes a while."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.standing import StandingPlatform, living_in
from tests.waiting import until

from cenote.gateway.process.restart_policy import MAX_RESTARTS

STANDING = pytest.StashKey[StandingPlatform]()


@pytest.fixture
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StandingPlatform:
    """It ends with the last test here, not with the run, whose process goes on with other folders.

    One that would not be started again much oftener, since tests have killed it, makes room for another.
    """
    folder = request.node.getparent(pytest.Dir)
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
    """Nothing is left of it."""
    session, folder, keeper = standing.cluster["pid"], standing.cluster["folder"], standing.keeper
    standing.command("down")
    until(lambda: not living_in(session) and not Path(f"/proc/{keeper}").exists())
    assert not Path(str(folder)).exists()
