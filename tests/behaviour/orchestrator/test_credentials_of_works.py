"""Credentials of jobs and teams: their jails use them, and no listing, log, audit entry or result has them."""

from __future__ import annotations

import asyncio
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.egress.world import Site, site
from tests.support.egress.world import World as Internet
from tests.support.jobs.workshop import BARE
from tests.support.orchestrator.studio import Studio
from tests.waiting import PATIENCE, until

from cenote.gateway.work.settings import WorkSecrets, put_back, taken_out
from cenote_proto.v1 import job_pb2, team_pb2
from cenote_security.errors import RejectedError
from cenote_security.network import Allow, Secret
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime import runtime as hosted
from cenote_worker.supervisor.start import JailStarter
from cenote_worker.wire import policies

CANARY = "canary-0ddba11c0ffee5eed"
ASK = "import urllib.request\nurllib.request.urlopen({url!r}).read().decode()"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(hosted, "start_jail", JailStarter(Internet).start)
    with site(tls=True) as served:
        yield served


def url(served: Site, path: str = "/") -> str:
    return f"https://files.test:{served.port}{path}"


def allowing(served: Site, value: str = f"Bearer {CANARY}") -> SandboxPolicy:
    host = f"files.test:{served.port}"
    return replace(BARE, isolation="strict", network=Allow([host], credentials={host: Secret(value)}))


def sent(served: Site) -> list[bool]:
    return [f"Authorization: Bearer {CANARY}" in head for head in served.heads]


@pytest.mark.slow
def test_a_job(studio: Studio, served: Site) -> None:
    """Each task's jail reaches the host with it, a retried one too; an answer that repeats it is masked."""
    jobs = studio.connect().jobs
    code = ASK.format(url=url(served, "/echo"))
    tasks = [{"code": code}, {"code": f"{code}\nassert False"}]
    job = jobs.submit(tasks, sandbox=allowing(served), name="with-credential", attempts=1)
    job.wait(PATIENCE)
    job.retry()
    status = job.wait(PATIENCE)
    results = list(job.results())
    assert [("succeeded", ""), ("failed", "AssertionError")] == [
        (result.status, result.error.type if result.error else "") for result in results
    ]
    assert [True] * 3 == sent(served)
    shown = [str(status), str(results), job.logs("1").text, job.logs("2").text, listed(studio)]
    assert [] == [text for text in shown if CANARY in text]
    assert [] == files_with_it(studio)
    assert ["jobs"] == kept(studio)
    job.remove()
    until(lambda: [] == kept(studio))


@pytest.mark.slow
def test_a_team(studio: Studio, served: Site) -> None:
    """Members have that of the team, or one of their own; another value replaces the former one."""

    async def run(policy: SandboxPolicy) -> str:
        team = studio.connect().team("with-credential", sandbox=policy)
        team.add("boss", model=studio.model("boss"), lead=True)
        return (await team.run("Ask.")).answer

    code = ASK.format(url=url(served))
    studio.models.script(boss=[f"```python\n{code}\n```", "Asked."])
    assert "Asked." == asyncio.run(run(allowing(served, "Bearer former")))
    assert "Asked." == asyncio.run(run(allowing(served)))
    assert [False, True] == sent(served)
    team = studio.connect().team("with-credential", sandbox=None, secrets=None)
    assert CANARY not in f"{team.status()}{listed(studio)}"
    assert [] == files_with_it(studio)
    assert ["teams"] == kept(studio)
    team.delete()
    until(lambda: [] == kept(studio))


def listed(studio: Studio) -> str:
    """What clients see of all jobs and teams, and what the platform has sent."""
    from cenote.jobs.job_client import JobClient
    from cenote.runtime.remote.background import background

    client = JobClient(studio.connect()._destination)
    return str([background().wait(client.get(job.id), 30, "answer") for job in studio.connect().jobs.list()])


def files_with_it(studio: Studio) -> list[str]:
    """Files of the platform's state in which it can be read: its database, its audit log, its own logs.

    Another process looks: the locks of a database go with any descriptor of it that its own process closes.
    """
    needles = ("-e", CANARY, "-e", CANARY.encode().hex())
    found = subprocess.run(
        ["grep", "-rlaF", *needles, studio.folder], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


def kept(studio: Studio) -> list[str]:
    """Where there are files with credentials, all of them private."""
    found = [path for path in studio.folder.glob("*/*/credentials") if path.read_text() != "{}"]
    assert [0o600] * len(found) == [stat.S_IMODE(path.stat().st_mode) for path in found]
    return [path.parent.parent.name for path in found]


def test_who_may_have_which(studio: Studio) -> None:
    """A sub-agent has none that its parent lacks; a wrong one is refused with its reason."""
    own = replace(BARE, network=Allow(["a.test"], credentials={"a.test": Secret(CANARY)}))
    team = studio.connect().team("weaker", sandbox=replace(BARE, network=Allow(["a.test"])))
    team.add("boss", model=studio.model("boss"), lead=True)
    team.add("helper", model=studio.model("boss"), under="boss", sandbox=own)

    with pytest.raises(RejectedError, match="network") as refused:
        asyncio.run(team.start("Go."))
    assert CANARY not in str(refused.value)


def test_a_submission_with_the_same_key(studio: Studio, served: Site) -> None:
    """It is the same job, whatever its credentials are: nothing that is stored tells two values apart."""
    jobs = studio.connect().jobs
    one = jobs.submit([{"code": "1"}], key="same", sandbox=allowing(served))
    other = jobs.submit([{"code": "1"}], key="same", sandbox=allowing(served, "Bearer other"))
    assert one.id == other.id
    one.wait(PATIENCE)
    one.remove()


def test_apart_and_together() -> None:
    """What is taken out of a definition is put back where it was; a definition without any stays as it is."""
    policy = policies.from_policy(allowing_of("a.test"))
    member = team_pb2.TeamMember(name="one", sandbox=policies.from_policy(allowing_of("b.test")))
    whole = team_pb2.TeamDefinition(sandbox=policy, members=[member, team_pb2.TeamMember(name="two")])
    definition = team_pb2.TeamDefinition.FromString(whole.SerializeToString())
    taken = taken_out(definition)
    assert {"", "one"} == set(taken)
    assert CANARY.encode() not in definition.SerializeToString()
    put_back(definition, taken)
    assert whole == definition
    plain = job_pb2.JobDefinition(sandbox=policies.from_policy(BARE))
    assert {} == taken_out(plain)


def allowing_of(host: str) -> SandboxPolicy:
    return replace(BARE, network=Allow([host], credentials={host: Secret(CANARY)}))


def test_a_folder_of_an_earlier_version(tmp_path: Path) -> None:
    """It has no file for credentials, and there were none."""
    keys = WorkSecrets(tmp_path / "job")
    keys.make("token")
    (tmp_path / "job" / "credentials").unlink()
    assert {} == keys.credentials()
