"""TeamService: permissions, what is stored of a team and what is reported."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.orchestrator.studio import Studio, code
from tests.waiting import until

import cenote
from cenote.gateway.store.database import Database
from cenote.gateway.store.quotas import QuotaBook
from cenote.gateway.store.tenants import Tenants, Tokens
from cenote.gateway.values.quota import Quota
from cenote.platform_team import ModelSpec, PlatformTeam, TeamRunError
from cenote.team import Budget
from cenote_security.auth.tokens import Scope
from cenote_security.errors import (
    CenoteError,
    NotAuthenticatedError,
    QuotaExceededError,
    RejectedError,
    ScopeMissingError,
    UsageError,
)
from cenote_security.policy import SandboxPolicy

BARE = SandboxPolicy(preload=(), memory="256MiB")


def scripted(*lines: str) -> ModelSpec:
    return ModelSpec(script=lines)


def someone(studio: Studio, tenant: str, *scopes: Scope) -> cenote.Platform:
    """A client of a tenant that is created for it."""
    with Database(studio.folder / "gateway.db") as database:
        known = {each.name: each for each in Tenants(database).all()}
        owner = known.get(tenant) or Tenants(database).create(tenant)
        token = Tokens(database).issue(owner.id, scopes or [Scope.TEAMS, Scope.REFERENCES])
    return cenote.connect(studio.address, token.text)


@pytest.mark.slow
async def test_two_tenants(studio: Studio) -> None:
    """Another tenant's team looks like one that does not exist, by name and by id; names may be equal."""
    mine = studio.team("same", sandbox=BARE).add("boss", model=scripted("Mine."))
    await mine.run("Say")
    other = someone(studio, "other")
    theirs = other.team("same")
    for ask in (theirs.status, theirs.cancel, theirs.delete, other.team(mine.status().id).status):
        with pytest.raises(UsageError, match="there is no team"):
            ask()
    with pytest.raises(UsageError, match="there is no team"):
        [news async for news in theirs.follow()]
    theirs = other.team("same", sandbox=BARE).add("boss", model=scripted("Theirs."))
    assert ("Theirs.", 1) == ((await theirs.run("Say")).answer, theirs.status().runs[0].number)
    theirs.delete()
    assert ["Mine."] == [run.answer for run in mine.status().runs]
    mine.delete()


async def test_scopes(studio: Studio) -> None:
    """Running agents on the platform has its own scope: no other one implies it."""
    blind = someone(studio, "scoped", Scope.RUNTIMES_READ, Scope.RUNTIMES_WRITE, Scope.ADMIN)
    with pytest.raises(ScopeMissingError, match="teams"):
        await blind.team("t").add("boss", model=scripted("x")).start("Say")
    with pytest.raises(ScopeMissingError, match="teams"):
        blind.team("t").status()


@pytest.mark.slow
async def test_quota_of_teams(tmp_path: Path, own_studio: Studio) -> None:
    """A team at the limit is created, one past it is refused, and a deletion frees quota."""
    platform = someone(own_studio, "small")
    with Database(own_studio.folder / "gateway.db") as database:
        tenant = next(each for each in Tenants(database).all() if each.name == "small")
        QuotaBook(database).set_limit(tenant.id, Quota.TEAMS, 1)
    first = platform.team("one", sandbox=BARE).add("boss", model=scripted("1"))
    await first.run("Say")
    with pytest.raises(QuotaExceededError, match="teams"):
        await platform.team("two").add("boss", model=scripted("2")).start("Say")
    first.delete()
    second = platform.team("two", sandbox=BARE).add("boss", model=scripted("2"))
    assert "2" == (await second.run("Say")).answer


@pytest.mark.slow
async def test_a_gateway_that_was_killed_while_it_deleted_a_team_leaves_nothing(own_studio: Studio) -> None:
    """The row goes first. The next gateway then removes the runtimes, the token, the secrets and the quota."""
    studio = own_studio
    platform = someone(studio, "acme")
    team = platform.team("one", sandbox=BARE).add("boss", model=scripted("1"))
    await team.run("Say")
    folder = studio.folder / "teams" / team.status().id
    token = (folder / "token").read_text()
    studio.close()
    with closing(sqlite3.connect(studio.folder / "gateway.db")) as database, database:
        database.execute("DELETE FROM teams")
    studio.open()
    until(lambda: not folder.exists())
    until(lambda: [0, 0] == [_count(studio, table) for table in ("holds", "runtimes")])
    with pytest.raises(NotAuthenticatedError):
        cenote.connect(studio.address, token).runtimes()


def _count(studio: Studio, table: str) -> int:
    with closing(sqlite3.connect(studio.folder / "gateway.db")) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.mark.slow
async def test_where_a_key_would_come_from_is_said(studio: Studio) -> None:
    """A model without one fails, and the error does not name an environment variable that its user cannot set."""
    team = studio.team("keyless", sandbox=BARE)
    team.add("boss", model=ModelSpec(name="gpt-4o-mini"))
    with pytest.raises(TeamRunError, match=r"model of boss .* `secrets=` .* `--team-env`"):
        await team.run("Look")


@pytest.mark.slow
async def test_secrets_are_kept_apart(studio: Studio) -> None:
    """A key reaches the model's server, and is not in any store, log, audit, event, status or jail."""
    secret = "sk-" + "hush" * 8
    look = "import os\nprint(sorted(os.environ.values()))\nreply('seen')"
    studio.models.script(lead=[code(look)])
    team = studio.team("secretive", sandbox=BARE, secrets={"KEY": secret})
    team.add("boss", model=studio.model("lead", secret="KEY"))
    await team.run("Look")
    assert f"Bearer {secret}" == studio.models.asked[0].headers["authorization"]
    told = str([news async for news in team.follow()]) + str(team.status())
    assert secret not in told
    # By another process: one that closes SQLite's files releases the locks that it has on them.
    searched = await asyncio.to_thread(
        subprocess.run, ["grep", "-rl", secret, str(studio.folder)], stdout=subprocess.PIPE, text=True
    )
    holders = [Path(line) for line in searched.stdout.splitlines()]
    assert [studio.folder / "teams" / team.status().id / "secrets"] == holders
    assert 0o600 == holders[0].stat().st_mode & 0o777
    team.delete()
    assert not holders[0].exists()


@pytest.mark.slow
async def test_the_platforms_own_keys_are_not_for_tenants(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway's environment is neither sent to a tenant's server nor visible to the loop."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-operator")
    studio.models.script(lead=["Done."])
    team = studio.team("keyless", sandbox=BARE).add("boss", model=studio.model("lead"))
    await team.run("Say")
    assert "Bearer none" == studio.models.asked[0].headers["authorization"]
    team.delete()


@pytest.mark.parametrize(
    ("member", "error", "text"),
    [
        ({"model": ModelSpec(name="m", base_url="http://10.0.0.1/v1")}, RejectedError, "sends nothing to"),
        ({"model": ModelSpec(name="m", secret="NONE")}, UsageError, "takes the secret"),
        (
            {"model": ModelSpec(name="m", parameters={"api_base": "http://x"})},
            UsageError,
            "no parameter 'api_base'",
        ),
        ({"model": ""}, UsageError, "has no name"),
        ({"model": "m", "under": "nobody"}, UsageError, "comes before it"),
        ({"model": "m", "sandbox": SandboxPolicy(isolation="none")}, RejectedError, "weaker walls"),
    ],
)
async def test_members_that_are_refused(studio: Studio, member: dict, error: type, text: str) -> None:
    """Before anything is stored."""
    with pytest.raises(error, match=text):
        await studio.team("refused").add("boss", **member).start("Say")
    with pytest.raises(UsageError, match="there is no team"):
        studio.team("refused").status()


async def test_a_sandbox_weaker_than_the_parents(studio: Studio) -> None:
    """The error names the field."""
    team = studio.team("weak").add("boss", model=scripted("x"), sandbox=BARE, lead=True)
    team.add("sub", model=scripted("y"), under="boss", sandbox=SandboxPolicy(preload=(), memory="1GiB"))
    with pytest.raises(RejectedError, match="weaker than its parent's in memory"):
        await team.start("Say")


@pytest.mark.parametrize("name", ["team", "class", "a b", "x" * 101])
async def test_names_of_members(studio: Studio, name: str) -> None:
    """Code uses them as names."""
    with pytest.raises(UsageError, match="is no name for a member"):
        await studio.team("named").add(name, model=scripted("x")).start("Say")


def test_what_lives_in_this_process_is_refused(studio: Studio) -> None:
    """With the reason, and what to use instead."""
    team = studio.team("local")
    with pytest.raises(UsageError, match="whose loop runs here"):
        team.add("boss", model="m", functions=[print])
    with pytest.raises(UsageError, match="works without this process"):
        team.add("boss", model=object())  # type: ignore[arg-type]


@pytest.mark.slow
async def test_cancel(studio: Studio) -> None:
    """The cell is interrupted, waiting runs do not begin, and the team can run again."""
    slow = "print('begun', flush=True)\nimport time\ntime.sleep(60)"
    team = studio.team("stopped", sandbox=BARE).add("boss", model=scripted(code(slow)))
    first, second = await team.start("Wait"), await team.start("Wait longer")
    until(lambda: any(runtime.steps for runtime in studio.connect().runtimes()))
    with pytest.raises(RejectedError, match="at work"):
        await team.add("other", model=scripted("x")).start("Say")
    team.cancel(second)
    team.cancel(first)
    for number in (first, second):
        with pytest.raises(TeamRunError, match="was cancelled"):
            await asyncio.wait_for(team.wait(number), 40)
    until(lambda: not studio.connect().runtimes())
    team.delete()


@pytest.mark.slow
async def test_what_fails_says_why(studio: Studio) -> None:
    """A model that is refused; a spent budget, which applies to all runs."""
    team = studio.team("poor", sandbox=BARE, budget=Budget(tokens=1)).add("boss", model=scripted("x"))
    with pytest.raises(TeamRunError, match="budget of tokens"):
        await team.run("Say")
    assert "failed" == team.status().runs[0].state
    team.delete()
    refused = studio.team("refused", sandbox=BARE).add("boss", model=studio.model("nobody"))
    with pytest.raises(TeamRunError, match="ModelRequestError"):
        await refused.run("Say")
    refused.delete()


@pytest.mark.slow
async def test_news_from_any_point_on(studio: Studio) -> None:
    """Numbered without gaps; a client that connects later gets the same events from any number."""
    team = studio.team("heard", sandbox=BARE).add("boss", model=scripted(code("print(1)"), "Done."))
    await team.run("Say")
    everything = [news async for news in team.follow()]
    assert everything[2:] == [news async for news in team.follow(after=everything[1].number)]
    assert [] == [news async for news in team.follow(after=everything[-1].number)]
    assert ["started", "code", "execution_output", "text", "final_response", "done"] == [
        news.type for news in everything
    ]
    team.delete()


@pytest.mark.slow
async def test_values_by_reference(studio: Studio) -> None:
    """A lead finds the given value under its name; no prompt contains it."""
    studio.models.script(lead=[code("reply(str(sum(rows)))")])
    with studio.connect().runtime("source", sandbox=BARE) as source:
        source.execute("rows = list(range(5000))")
        reference = source.share("rows")
        team = studio.team("given", sandbox=BARE).add("boss", model=studio.model("lead"))
        assert str(sum(range(5000))) == (await team.run("Add", variables={"rows": reference})).answer
    assert "4321" not in str(studio.models.asked)
    studio.connect().delete("source")
    team.delete()


CLIENT = """
import asyncio, sys
import cenote
from cenote.platform_team import ModelSpec

async def main():
    team = cenote.connect(sys.argv[1]).team("left-behind")
    team.add("boss", model=ModelSpec(name="lead", base_url=sys.argv[2]))
    print(await team.start("Say"), flush=True)
    await team.wait()

asyncio.run(main())
"""


@pytest.mark.slow
async def test_the_client_is_killed(studio: Studio) -> None:
    """The team continues; another client finds the run and follows it from the beginning."""
    studio.models.script(lead=[code("print(1)"), "Done all the same."])
    gate = studio.models.hold("lead", 2)
    client = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", CLIENT, studio.address, studio.models.url],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    number = int(client.stdout.readline())
    until(lambda: studio.models.calls["lead"] == 2)
    os.kill(client.pid, signal.SIGKILL)
    client.wait()
    client.stdout.close()
    gate.set()
    later: PlatformTeam = studio.team("left-behind")
    assert "Done all the same." == (await later.wait(number)).answer
    assert {"lead": 2} == dict(studio.models.calls)
    assert "started" == (await anext(later.follow())).type
    later.delete()


@pytest.mark.slow
async def test_the_gateway_ends(own_studio: Studio) -> None:
    """The team pauses while the gateway is gone; the next one resumes the run. Its runtimes were the gateway's own,
    so the task begins anew, and an event says so.
    """
    own_studio.models.script(lead=[code("print(1)"), "Done."])
    gate = own_studio.models.hold("lead", 2)
    team = own_studio.team("long", sandbox=BARE).add("boss", model=own_studio.model("lead"))
    number = await team.start("Say")
    until(lambda: own_studio.models.calls["lead"] == 2)
    own_studio.close()
    assert [] == own_studio.orchestrators()
    gate.set()
    own_studio.open()
    team = own_studio.team("long")
    assert "Done." == (await team.wait(number)).answer
    assert "restarted" in [news.type async for news in team.follow()]


async def test_unknown_runs(studio: Studio) -> None:
    """A number that no run has."""
    team = studio.team("short", sandbox=BARE).add("boss", model=scripted("x"))
    await team.run("Say")
    with pytest.raises(CenoteError, match="there is no run"):
        team.cancel(7)
    team.delete()


@pytest.mark.slow
async def test_a_team_that_has_no_member_yet(studio: Studio) -> None:
    """It does not exist, and the error says how to create one, and where to look for runs."""
    with pytest.raises(UsageError, match=r"there is no team 'empty'.*when it has a member, by `add`"):
        await studio.team("empty").run("Go on.")
    team = studio.team("full")
    studio.models.script(one=[code("reply('done')")])
    team.add("one", model=studio.model("one"))
    await team.run("Go on.")
    with pytest.raises(UsageError, match=r"a text, or a plan of cenote\.plans, not on 3"):
        await team.run(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there is no run '9' here; `cenote team show"):
        await team.wait(9)
    team.delete()
