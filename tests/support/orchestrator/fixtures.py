"""A platform for the tests of a process that do not change it, models of each test's own; and a team without a
platform."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.orchestrator.forked_works import forked_works
from tests.support.orchestrator.studio import Scripts, Studio

from cenote.gateway.store.database import Database
from cenote.gateway.store.tenants import Tenants
from cenote.gateway.teams.tables import TeamRow, TeamTable

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed  # type: ignore[attr-defined]
    return report


@pytest.fixture(scope="session")
def _studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    folder = Path(tmp_path_factory.mktemp("studio"))
    with Scripts() as models, forked_works(folder / "state") as works:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
            studio = Studio(folder / "state", models, works=works).open()
        yield studio
        studio.close()


@pytest.fixture
def studio(
    _studio: Studio, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Studio]:
    """Its models begin with empty scripts. Processes that still work after a failed test print their stacks, and end.

    Its token is found only by these tests: others in this process have theirs.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(_studio.folder.parent / "config"))
    _studio.models.lines.clear()
    _studio.models.calls.clear()
    _studio.models.asked.clear()
    _studio.models._gates.clear()
    yield _studio
    if request.node.stash.get(FAILED, False):
        print(_studio.last_words())


@pytest.fixture
def own_studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Studio]:
    """For a test that ends it. Its worker processes start normally."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with Scripts() as models:
        studio = Studio(tmp_path / "state", models).open()
        yield studio
        studio.close()


@pytest.fixture
def team(database: Database) -> TeamRow:
    """A tenant's team, without a platform."""
    return TeamTable(database).add(Tenants(database).create("us").id, "team", b"")
