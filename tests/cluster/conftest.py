"""One standing platform for all tests of this folder: starting and ending it takes a while."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.cluster.standing import StandingPlatform, living_in
from tests.waiting import until

STANDING = pytest.StashKey[StandingPlatform]()


@pytest.fixture
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StandingPlatform:
    """It ends with the last test here, not with the run, whose process goes on with other folders."""
    folder = request.node.getparent(pytest.Dir)
    if STANDING not in folder.stash:
        standing = StandingPlatform(tmp_path_factory.mktemp("standing"))
        standing.up()
        folder.addfinalizer(partial(end, standing))
        folder.stash[STANDING] = standing
    return folder.stash[STANDING]


def end(standing: StandingPlatform) -> None:
    """Nothing is left of it."""
    session, folder, keeper = standing.cluster["pid"], standing.cluster["folder"], standing.keeper
    standing.command("down")
    until(lambda: not living_in(session) and not Path(f"/proc/{keeper}").exists())
    assert not Path(str(folder)).exists()
