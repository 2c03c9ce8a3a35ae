"""The database fails for one query while a team or a job is worked on: no work fails because of that."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.orchestrator.studio import Scripts, Studio, code
from tests.waiting import PATIENCE, until

from cenote.gateway.api.runtime_registry import RuntimeRegistry
from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.jobs.ledger import JobLedger
from cenote.gateway.jobs.runner import JobRunner
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.teams import runtimes
from cenote.gateway.teams.ledger import TeamLedger
from cenote.gateway.teams.orchestrator import Orchestrator
from cenote.gateway.work.processes import ProcessOrchestrators
from cenote.gateway.work.settings import OrchestratorSettings
from cenote.gateway.work.workload import Kind
from cenote.platform_team import ModelSpec, TeamRunError
from cenote_security.policy import SandboxPolicy

BARE = SandboxPolicy(preload=(), memory="256MiB")


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Studio]:
    """A platform whose works only the test works on."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(ProcessOrchestrators, "ensure", lambda _self, _work: None)
    with Scripts() as models:
        studio = Studio(tmp_path / "state", models).open()
        yield studio
        studio.close()


def settings(studio: Studio, kind: Kind, work: str) -> OrchestratorSettings:
    state = StateFolder(path=studio.folder)
    return OrchestratorSettings(state=state, kind=kind, work=work, address=studio.address)


def away(
    monkeypatch: pytest.MonkeyPatch, asks: type, name: str, when: Callable[..., bool], times: int = 1
) -> list[object]:
    """Makes the database fail the first times that this call is made. Returns the arguments of the failed calls."""
    asked, call = list[object](), getattr(asks, name)

    def failing(self: object, *given: Any, **more: Any) -> object:
        if len(asked) < times and when(*given):
            asked.append(given)
            raise DatabaseUnavailableError("here", "it is away")
        return call(self, *given, **more)

    monkeypatch.setattr(asks, name, failing)
    return asked


UNLUCKY = """
import sys
from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.work import process
from cenote.gateway.teams.ledger import TeamLedger

def away(ledger, note, *more):
    if (note.agent, note.kind) == (sys.argv[2], "cell"):
        raise DatabaseUnavailableError("here", "it is away")
    write(ledger, note, *more)

write, TeamLedger.note = TeamLedger.note, away
sys.exit(process.main(sys.argv[1]))
"""
"""Works on a team, and cannot record the result of an agent's cell."""


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["worker", "boss"])
def test_a_team_goes_on_where_it_was(idle: Studio, agent: str) -> None:
    """In its runtimes: what ran there does not run again, and a cell that waits for a sub-agent still waits."""
    count = "runs = globals().get('runs', 0) + 1"
    asks = code(f"{count}\nanswer = await worker.run('work')\nreply(f'{{answer.content}} for {{runs}}')")
    team = idle.team("steady", sandbox=BARE)
    team.add("boss", model=ModelSpec(script=[asks, "It failed."]), lead=True)
    team.add("worker", model=ModelSpec(script=[code(count), code("reply(str(runs))")]))
    number = asyncio.run(team.start("Work"))
    wanted = settings(idle, "team", team.status().id)
    command = [sys.executable, "-c", UNLUCKY, wanted.to_json(), agent]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as unlucky:
        assert 1 == unlucky.wait(PATIENCE)
    assert "running" == team.status().runs[0].state
    Orchestrator(wanted).work()
    assert "1 for 1" == asyncio.run(team.wait(number)).answer


def test_a_team_can_be_cancelled_behind_it(idle: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll for cancellation continues."""
    team = idle.team("stopped", sandbox=BARE)
    team.add("boss", model=ModelSpec(script=[code("import time\nfor _ in range(6000): time.sleep(0.01)")]))
    number = asyncio.run(team.start("Wait"))
    orchestrator = Orchestrator(settings(idle, "team", team.status().id))
    asked = away(monkeypatch, TeamLedger, "is_cancelled", lambda _run: True, times=3)
    working = threading.Thread(target=orchestrator.work, daemon=True)
    working.start()
    until(lambda: len(asked) == 3 and any(runtime.steps for runtime in idle.connect().runtimes()))
    team.cancel(number)
    working.join(PATIENCE / 2)  # its cell ends by itself after that
    assert not working.is_alive()
    with pytest.raises(TeamRunError, match="was cancelled"):
        asyncio.run(team.wait(number))


def test_an_agents_runtime_is_asked_for_again(idle: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the gateway cannot record that it exists."""
    team = idle.team("early", sandbox=BARE)
    team.add("boss", model=ModelSpec(script=[code("reply('here')")]))
    number = asyncio.run(team.start("Begin"))
    orchestrator = Orchestrator(settings(idle, "team", team.status().id))
    monkeypatch.setattr(runtimes, "LOOK_EVERY", 0.01)
    asked = away(monkeypatch, RuntimeRegistry, "make", lambda *_: True, times=3)
    orchestrator.work()
    assert 3 == len(asked)
    assert "here" == asyncio.run(team.wait(number)).answer


@pytest.mark.slow
def test_tasks_beside_the_one_that_could_not_be_written_down(
    idle: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are stopped with it, and repeated with it: no client has cancelled them."""
    slow = "import time\nfor _ in range(100): time.sleep(0.01)\n'slow'"
    job = idle.connect().jobs.submit([{"code": slow}, {"code": "'soon'"}], concurrency=2, sandbox=BARE)
    asked = away(monkeypatch, JobLedger, "end", lambda *_: True)
    with pytest.raises(DatabaseUnavailableError):
        JobRunner(settings(idle, "job", job.id)).work()
    assert 1 == len(asked)
    assert (0, 0) == (job.status().over, job.status().cancelled)
    JobRunner(settings(idle, "job", job.id)).work()
    assert [("'slow'", 2, 1), ("'soon'", 2, 1)] == [
        (each.answer, each.attempts, each.lost) for each in job.results()
    ]
