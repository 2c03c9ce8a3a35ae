"""A platform under load whose processes are killed at random: no wrong result, no hang, nothing left.

A minute in the suite, half an hour among the long tests; CENOTE_SOAK_SECONDS and CENOTE_SOAK_SEED set another time
and another seed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.cluster.levels import Accounts, Levels, in_jail, risen, table
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill
from tests.waiting import until

import cenote
from cenote import SandboxPolicy
from cenote.gateway.process.restart_policy import MAX_RESTARTS as MOST_RESTARTS
from cenote.gateway.process.restart_policy import RESTART_WINDOW
from cenote.platform_team import ModelSpec, PlatformTeam
from cenote_security.errors import CenoteError, UnavailableError

SECONDS = 28.0
"""Of work. It takes as long again until the resources of the last killed user are released."""

LONG_SECONDS = float(os.environ.get("CENOTE_SOAK_SECONDS", "1800"))
SEED = int(os.environ.get("CENOTE_SOAK_SEED", "1"))
USERS = 3
WARM_SECONDS = 4.0
HANGS = 150.0
"""Seconds after which a user that has not returned counts as hanging: more than any client timeout."""

LEASES = 100.0
"""Seconds after which everything that a client could not release is released: the grace of a broken connection, a
lease of `soak_user`, sweeps; or the lease of a value that no client has held yet.
"""

MOST = ("gateway", "descriptor_store", "orchestrator", "nursery", "agent", "actor", "jail", "actor", "jail")
"""What is killed besides users: each of these once, and then a random one."""

BETWEEN = (1.5, 4.0)
"""Seconds between two kills."""

GATEWAY_REST = RESTART_WINDOW / MOST_RESTARTS + 5
"""Seconds. A gateway that dies more often is not restarted any more."""

RUN = "```python\nimport time\ntime.sleep(1)\nreply('done')\n```"


class Report(NamedTuple):
    """A user's report at its end. See `soak_user`."""

    steps: int
    told: list[str]
    wrong: list[str]


class Users:
    """Processes that work on the platform; one that was killed is replaced."""

    def __init__(self, platform: StandingPlatform, seconds: float) -> None:
        self._platform = platform
        self._ends = time.monotonic() + seconds
        self._seeds = itertools.count(1000 * SEED)
        self._working = [self._start() for _ in range(USERS)]

    def kill_one(self, chance: random.Random) -> None:
        place = chance.randrange(USERS)
        self._working[place].kill()
        self._working[place].communicate()
        self._working[place] = self._start()

    def reports(self) -> list[Report]:
        """Reports of those that were not killed, at their end."""
        return [self._report(user) for user in self._working]

    def _start(self) -> subprocess.Popen[str]:
        left = max(self._ends - time.monotonic(), 1.0)
        user = Path(__file__).resolve().parents[2] / "support" / "cluster" / "soak_user.py"
        line = [sys.executable, str(user), self._platform.address, self._platform.token]
        return subprocess.Popen([*line, str(next(self._seeds)), str(left)], stdout=subprocess.PIPE, text=True)

    def _report(self, user: subprocess.Popen[str]) -> Report:
        said = user.communicate(timeout=max(self._ends - time.monotonic(), 0.0) + HANGS)[0]
        assert user.returncode == 0
        return Report(**json.loads(said))


class Teams:
    """One run of a platform's team after the other, until one is done when the time is over."""

    def __init__(self, platform: StandingPlatform, seconds: float) -> None:
        self._here = cenote.connect(platform.address, platform.token)
        self._ends = time.monotonic() + seconds
        self.answers: list[str] = []
        self.thread = threading.Thread(target=lambda: asyncio.run(self._work()), daemon=True)
        self.thread.start()

    async def _work(self) -> None:
        for number in itertools.count():
            team = self._here.team(f"team{number}", sandbox=SandboxPolicy(preload=(), memory="256MiB"))
            team.add("boss", model=ModelSpec(script=[RUN]))
            try:
                self.answers.append((await team.run("Work")).answer)
            except CenoteError as error:
                self.answers.append(f"told: {error}")
            await self._delete(team)
            if time.monotonic() > self._ends and "done" in self.answers:
                return

    async def _delete(self, team: PlatformTeam) -> None:
        while True:
            try:
                team.delete()
                return
            except UnavailableError:  # no server for the moment
                await asyncio.sleep(0.3)
            except CenoteError:
                return  # it was never created


class Shots:
    """Kills processes, one at a time."""

    def __init__(self, platform: StandingPlatform, users: Users, chance: random.Random) -> None:
        self._platform, self._users, self._chance = platform, users, chance
        self._first = [*chance.sample(MOST, len(MOST)), "client"]
        self._gateway_died = 0.0
        self.fired: list[str] = []

    def pause(self) -> float:
        return self._chance.uniform(*BETWEEN)

    def fire(self, users: bool) -> None:
        """users: whether users may be killed, too."""
        kind = self._first.pop() if self._first else self._chance.choice([*MOST, *["client"] * 3 * users])
        self.fired.append(kind)
        shot: Callable[[], None] = getattr(self, f"_{kind}")
        shot()

    def _client(self) -> None:
        self._users.kill_one(self._chance)

    def _gateway(self) -> None:
        if time.monotonic() > self._gateway_died + GATEWAY_REST and self._platform.answers:
            kill(self._platform.gateway)
            self._gateway_died = time.monotonic()

    def _agent(self) -> None:
        self._some(self._platform.processes("ray::NodeAgent"))

    def _actor(self) -> None:
        self._some(self._platform.processes("ray::RuntimeActor"))

    def _nursery(self) -> None:
        self._some(self._platform.processes("ray::NurseryActor"))

    def _orchestrator(self) -> None:
        self._some(self._platform.processes("ray::OrchestratorActor"))

    def _descriptor_store(self) -> None:
        try:
            descriptor_store = self._platform.descriptor_store
        except OSError:  # it is being replaced
            return
        kill(descriptor_store)

    def _jail(self) -> None:
        """The jail's first process, or the process of its cells."""
        self._some([pid for pid in self._platform.marked() if in_jail(pid) in (1, 2)])

    def _some(self, pids: list[int]) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            kill(*pids and [self._chance.choice(pids)])


def soak(platform: StandingPlatform, seconds: float) -> None:
    warm_up(platform)
    accounts = Accounts(platform)
    before = accounts.count()
    users, teams = Users(platform, seconds), Teams(platform, seconds)
    fire(Shots(platform, users, random.Random(SEED)), accounts, seconds)
    reports = users.reports()
    teams.thread.join(HANGS)
    print(reports, teams.answers)
    assert not teams.thread.is_alive(), "a team hangs, or each fails"
    assert [] == [wrong for report in reports for wrong in report.wrong]
    assert all(report.steps for report in reports)
    now = settled(accounts, before)
    print(table(before, now))
    assert {} == risen(before, now)


def warm_up(platform: StandingPlatform) -> None:
    """Creates what the first users leave for the next ones, and releases the rest."""
    users, teams = Users(platform, WARM_SECONDS), Teams(platform, 0.0)
    users.reports()
    teams.thread.join(HANGS)
    until(lambda: not platform.kept())


def fire(shots: Shots, accounts: Accounts, seconds: float) -> None:
    """Users are killed in the first third only: it takes half a minute until no process waits for them any more."""
    began, pause = time.monotonic(), threading.Event()
    while (passed := time.monotonic() - began) < seconds:
        pause.wait(shots.pause())
        accounts.look()
        shots.fire(passed < seconds / 3)
    print(shots.fired)


def settled(accounts: Accounts, before: Levels) -> Levels:
    """The levels when they are as before, or at the latest when the time is over."""
    deadline = time.monotonic() + LEASES
    while risen(before, now := accounts.count()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return now


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_minute_under_fire(platform: StandingPlatform) -> None:
    """Each acknowledged step is present, or its loss is reported; afterwards the platform is as before."""
    soak(platform, SECONDS)


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 600)
def test_half_an_hour_under_fire(platform: StandingPlatform) -> None:
    """The same for longer: it shows losses that happen once in a thousand times, and slow growth."""
    soak(platform, LONG_SECONDS)
