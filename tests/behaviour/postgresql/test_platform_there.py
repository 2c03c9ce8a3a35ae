"""A whole platform with its records on a server: teams, jobs, commands, and a restart of the server meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands.fixtures import carried_out
from tests.support.jobs.workshop import BARE
from tests.support.orchestrator.studio import Scripts, Studio, code
from tests.support.postgresql_server import PostgresqlServer
from tests.waiting import until

from cenote.gateway.store.database import keep_database_url
from cenote.gateway.store.state_folder import StateFolder
from cenote_security.errors import UnavailableError

pytestmark = pytest.mark.databases("postgresql")


@pytest.fixture
def studio(db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Studio]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keep_database_url(StateFolder(path=tmp_path / "cenote"), db)
    with Scripts() as models:
        studio = Studio(tmp_path / "cenote", models).open()
        yield studio
        studio.close()


@pytest.mark.slow
async def test_a_platform(
    studio: Studio, server: PostgresqlServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """What agents and tasks did is recorded once, though the server was killed while they ran."""
    studio.models.script(worker=[code("total = 6 * 7"), "It is 42."])
    gate = studio.models.hold("worker", 2)
    platform = studio.connect()
    tasks = [{"code": "print('a\\0b')\n7"}, {"task": "Multiply"}, {"code": "print('seen')\n6 * 7"}]
    job = platform.jobs.submit(tasks, concurrency=1, model=studio.model("worker"), sandbox=BARE)
    until(lambda: studio.models.calls["worker"] == 2)
    with platform.runtime("joined", sandbox=BARE) as runtime:
        server.kill()
        assert runtime.execute("x = 1").success
        with pytest.raises(UnavailableError, match="cannot keep its records now"):
            platform.runtimes()
        server.start()
    gate.set()
    assert "done" == job.wait().state
    assert ["7", "It is 42.", "42"] == [result.value or result.answer for result in job.results()]
    assert "a\0b" in job.logs("1").text
    team = studio.team("line", sandbox=BARE)
    team.add("worker", model=studio.model("worker"))
    run = await asyncio.wait_for(team.wait(await team.start("Multiply")), 60)
    assert "It is 42." == run.answer
    assert ["line"] == [each.name for each in platform.teams()]
    found = carried_out(("token", "create", "default"), capsys)
    assert (0, "") == (found.returncode, found.stderr)
    assert not (studio.folder / "gateway.db").exists()
    studio.close()
    studio.open()
    assert [job.id] == [each.id for each in studio.connect().jobs.list()]


@pytest.mark.slow
def test_the_command(db: str, tmp_path: Path) -> None:
    """`cenote up` gets the URL once; it is in no process's arguments or environment."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("CENOTE_")}
    environment |= {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CONFIG")}
    command = [sys.executable, "-m", "cenote.cli.main"]

    def run(*arguments: str, **more: str) -> str:
        line = [*command, *arguments]
        return subprocess.run(line, env=environment | more, check=True, capture_output=True, text=True).stdout

    up = ("up", "--without-ray", "--port", "0")
    run(*up, CENOTE_DATABASE=db)
    try:
        run("tenant", "create", "acme")
        for path in Path("/proc").glob("[0-9]*/"):
            if f"{tmp_path}/STATE" in _read(path / "cmdline"):
                assert db not in _read(path / "cmdline") + _read(path / "environ")
    finally:
        run("down")
    run(*up)
    try:
        assert "acme" in run("tenant", "ls")
    finally:
        run("down")


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:  # it has just ended
        return ""
