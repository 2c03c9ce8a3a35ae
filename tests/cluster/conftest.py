"""One standing platform for all tests of a run: starting and ending it takes a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.standing import StandingPlatform, living_in
from tests.waiting import until


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandingPlatform]:
    standing = StandingPlatform(tmp_path_factory.mktemp("standing"))
    standing.up()
    yield standing
    session, folder, keeper = standing.cluster["pid"], standing.cluster["folder"], standing.keeper
    standing.command("down")
    until(lambda: not living_in(session) and not Path(f"/proc/{keeper}").exists())
    assert not Path(str(folder)).exists()
