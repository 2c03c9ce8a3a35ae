"""`cenote team`: the teams that a script has created, on the command line."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.support.orchestrator.studio import Studio, code

from cenote.cli.main import main
from cenote.platform_team import ModelSpec
from cenote_security.policy import SandboxPolicy

BARE = SandboxPolicy(preload=(), memory="256MiB")


@pytest.fixture
def address(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CENOTE_ADDRESS", studio.address)
    return studio.address


@pytest.mark.slow
def test_from_the_first_run_to_the_end(
    studio: Studio, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` follows and prints the answer; `ls` and `show` describe it, as JSON too; `rm` ends it."""
    team = studio.team("shell", sandbox=BARE)
    team.add("boss", model=ModelSpec(script=[code("print(41)"), "First."]))
    asyncio.run(team.run("Say"))
    assert 0 == main(["team", "run", "shell", "Say it again"])
    said = capsys.readouterr()
    assert "First.\n" == said.out
    assert "boss: code" in said.err
    assert 0 == main(["team", "run", "shell", "And again", "--json"])
    assert {"number": 3, "status": "success", "answer": "First."} == json.loads(capsys.readouterr().out)
    assert 0 == main(["team", "ls", "--json"])
    (listed,) = [each for each in json.loads(capsys.readouterr().out) if each["name"] == "shell"]
    assert ("shell", ["boss"], 3) == (listed["name"], listed["members"], len(listed["runs"]))
    assert 0 == main(["team", "show", "shell"])
    assert "run 3: done First." in capsys.readouterr().out
    assert 0 == main(["team", "cancel", "shell"])
    assert 0 == main(["team", "rm", "shell"])
    assert 2 == main(["team", "show", "shell"])
    assert "there is no team" in capsys.readouterr().err
