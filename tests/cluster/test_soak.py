"""A platform at work whose processes are killed one after the other: nothing is wrong, hangs, or is left behind.

Half an hour; CENOTE_SOAK_SECONDS sets another time.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.standing import StandingPlatform, descriptors, kill, until

from cenote import PythonRuntime, Variable
from cenote_security.errors import CenoteError

SECONDS = float(os.environ.get("CENOTE_SOAK_SECONDS", "1800"))
USERS = 3
HANGS = 150.0
"""Seconds after which a user that has not come back does hang: more than any patience of a client."""

LEASES = 140.0
"""Seconds after which nothing is kept that a client could not give back, because nobody was there at that moment."""

GROUPS = re.compile(".*/cenote-client-[0-9a-f]+")

SPARE = 8
"""Descriptors that a process may have more than at first: lines to others, which come and go."""


class User:
    """Counts in one runtime after the other, and passes values on. told: losses that were reported to it."""

    def __init__(self, platform: StandingPlatform, until: float, seed: int) -> None:
        self._platform = platform
        self._until = until
        self._chance = random.Random(seed)
        self.steps, self.told, self.wrong = 0, 0, list[str]()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while time.monotonic() < self._until:
            try:
                with PythonRuntime(address=self._platform.address, token=self._platform.token) as runtime:
                    self._use(runtime)
            except CenoteError:
                self.told += 1
                time.sleep(0.5)  # nobody is there for the moment
            except BaseException as error:
                self.wrong.append(repr(error))
                raise

    def _use(self, runtime: PythonRuntime) -> None:
        runtime.execute("count = 0")
        for number in range(1, self._chance.randrange(2, 30)):
            result = runtime.execute(
                f"import time; time.sleep({self._chance.random() / 5}); count += 1; count"
            )
            if result.state == "lost":
                self.told += 1
                return
            if result.value != str(number):
                self.wrong.append(f"step {number} gave {result}")
            self.steps += 1
        reference = runtime.share("count")
        runtime.inject(Variable("again", reference))


class Accounts:
    """What the platform has, that users may leave behind."""

    def __init__(self, platform: StandingPlatform) -> None:
        self._platform = platform
        self._at_first = self.most_descriptors()

    def most_descriptors(self) -> int:
        actors = self._platform.processes("ray::RuntimeActor") + self._platform.processes("ray::NodeAgent")
        return max(map(descriptors, [*actors, self._platform.keeper]))

    def left(self) -> list[str]:
        """Of users that have gone: jails, journals and values in memory, control groups, descriptors."""
        kinds = ("runtime/", "spare/", "value/", "lease/")
        left = [key for kind in kinds for key in self._platform.kept(kind)] + list(map(str, self._groups()))
        if (most := self.most_descriptors()) > self._at_first + SPARE:
            left.append(f"{most} descriptors of one process; at first there were {self._at_first}")
        return left

    def settled(self) -> list[str]:
        """The same, once what was not given back has ended with its lease."""
        deadline = time.monotonic() + LEASES
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return left

    def _groups(self) -> list[Path]:
        """Of jails, below the folders on which the nursery holds a lock."""
        found = []
        for pid in self._platform.processes("ray::NurseryActor"):
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            for folder in {match[0] for link in links if (match := GROUPS.match(link))}:
                found += [path for path in Path(folder).iterdir() if path.is_dir()]
        return found


def kills(platform: StandingPlatform) -> list[Callable[[], object]]:
    return [
        lambda: kill(platform.gateway),
        lambda: kill(*platform.processes("ray::NodeAgent")),
        lambda: kill(*platform.processes("ray::RuntimeActor")),
        lambda: kill(*platform.processes("ray::NurseryActor")),
    ]


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 400)
def test_a_platform_under_fire(platform: StandingPlatform) -> None:
    """Each step that was acknowledged is there, or its loss is told; and then the platform is as it was."""
    with PythonRuntime(address=platform.address, token=platform.token) as runtime:
        assert runtime.execute("1").success
    until(lambda: not platform.kept("runtime/"))
    accounts, ends = Accounts(platform), time.monotonic() + SECONDS
    users = [User(platform, ends, seed) for seed in range(USERS)]
    chance, pause = random.Random(1), threading.Event()
    while time.monotonic() < ends:
        for shot in chance.sample(kills(platform), 4):
            until(lambda: platform.answers)
            pause.wait(20.0)  # a gateway that dies more often than that is given up
            shot()
    for user in users:
        user.thread.join(HANGS)
        assert not user.thread.is_alive(), "a user hangs"
    assert [] == [wrong for user in users for wrong in user.wrong]
    assert all(user.steps for user in users)
    assert [] == accounts.settled()
