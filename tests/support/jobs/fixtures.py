"""One platform for the tests of jobs that do not change it; models of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.orchestrator.forked_works import forked_works
from tests.support.orchestrator.studio import Scripts, Studio


@pytest.fixture(scope="package")
def _standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    folder = Path(tmp_path_factory.mktemp("jobs"))
    with Scripts() as models, forked_works(folder / "state") as works:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
            studio = Studio(folder / "state", models, works=works).open()
        yield studio
        studio.close()


@pytest.fixture
def studio(_standing: Studio, monkeypatch: pytest.MonkeyPatch) -> Studio:
    """Its models begin with empty scripts. Its token is found only by these tests: others in this process have
    theirs."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(_standing.folder.parent / "config"))
    models = _standing.models
    for kept in (models.lines, models.calls, models.asked, models._gates):
        kept.clear()
    return _standing
