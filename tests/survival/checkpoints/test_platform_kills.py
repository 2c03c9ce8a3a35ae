"""Kill -9 of a whole platform at random moments: its durable runtimes have their acknowledged states."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from platform import machine

import pytest
from tests.waiting import PATIENCE, until

from cenote import PythonRuntime, SandboxPolicy
from cenote_security.errors import OutcomeUnknownError, UnavailableError

ROOT = Path(__file__).resolve().parents[3]
SANDBOX = SandboxPolicy(preload=(), snapshots="none")
BEGIN = "x, log = 0, []; alias = log; open('file', 'w').close()"
CELL = "x += 1; log.append(x)\nwith open('file', 'a') as f: print(x, file=f)\nx"
FOUND = "x, len(log), len(alias), log is alias, len(open('file').readlines())"


class Platforms:
    """One platform at a time, on one state folder and at one port, each killed with its jails."""

    def __init__(self, folder: Path) -> None:
        homes = {f"XDG_{each}_HOME": str(folder / each) for each in ("STATE", "CONFIG")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.checkpoints.platform_child", str(folder / "state")],
            cwd=ROOT,
            env=os.environ | homes,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._pid = 0
        self._token = folder / "CONFIG" / "cenote" / "token"
        self.address = "127.0.0.1:0"

    def up(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(self.address.partition(":")[2] + "\n")
        self._pid = int(self._told("pid"))
        self.address = self._told("listens")

    def kill(self) -> None:
        os.killpg(self._pid, signal.SIGKILL)
        self._told("over")

    def close(self) -> None:
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert 0 == self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def token(self) -> str:
        return self._token.read_text().strip()

    def _told(self, what: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, rest = line.strip().partition(" ")
            if kind == what:
                return rest
            assert kind != "over", "the platform has ended by itself"
        raise AssertionError("the process that forks platforms has ended")


class Worker:
    """A client that runs cells one after the other, and knows the state that each must have found."""

    def __init__(self, platforms: Platforms, name: str) -> None:
        arguments = {"token": platforms.token, "name": name, "durable": True, "sandbox": SANDBOX}
        self.runtime = PythonRuntime(address=platforms.address, **arguments)  # type: ignore[arg-type]
        assert self.runtime.execute(BEGIN).success
        self.answered = self.unanswered = 0
        self.over = threading.Event()
        self._news = threading.Event()

    def goes_on(self) -> None:
        """Waits for the next answer."""
        self._news.clear()
        assert self._news.wait(PATIENCE)

    def work(self) -> None:
        """An answered cell has run once; an unanswered one has run once or not at all."""
        doubt = False
        while not self.over.is_set() or doubt:
            try:
                if doubt:
                    found = int(str(self.runtime.execute("x").value))
                    assert found in (self.answered, self.answered + 1)
                    self.answered, doubt = found, False
                assert str(self.answered + 1) == self.runtime.execute(CELL).value
                self.answered += 1
                self._news.set()
            except (OutcomeUnknownError, UnavailableError):
                self.unanswered += 1
                doubt = True

    def check(self) -> None:
        """The present state is complete. A step that ran and was lost is recorded too, on a line that has ended."""
        x = self.answered
        assert f"({x}, {x}, {x}, True, {x})" == self.runtime.execute(FOUND).value
        ran = [step.value for step in self.runtime.state.steps if step.code == CELL]
        assert sorted(set(map(int, ran))) == list(map(int, ran))
        assert {str(number) for number in range(1, x + 1)} >= set(ran)
        assert x - self.unanswered <= len(ran) <= x


@pytest.fixture
def platforms(tmp_path: Path) -> Iterator[Platforms]:
    platforms = Platforms(tmp_path)
    platforms.up()
    yield platforms
    platforms.close()


def kill(platforms: Platforms, times: int) -> None:
    rng = random.Random(20261122)
    workers = [Worker(platforms, name) for name in ("first", "second")]
    with ThreadPoolExecutor() as pool:
        working = [pool.submit(worker.work) for worker in workers]
        for _ in range(times):
            for worker in workers:
                worker.goes_on()
            moment = threading.Timer(rng.uniform(0, 0.15), platforms.kill)
            moment.start()
            moment.join()
            platforms.up()
        for worker in workers:
            worker.over.set()
        for work in working:
            work.result()
    for worker in workers:
        worker.check()
        assert worker.answered >= times
        worker.runtime.close()


@pytest.mark.slow
@pytest.mark.skipif(machine() != "x86_64", reason="images are for x86-64")
def test_what_sleeps_wakes_exactly_after_a_kill(platforms: Platforms) -> None:
    """Its jails had another zygote."""
    sandbox = SandboxPolicy(preload=())
    with PythonRuntime(
        address=platforms.address, token=platforms.token, name="r", durable=True, sandbox=sandbox
    ) as runtime:
        code = (
            "import sqlite3\ndatabase = sqlite3.connect(':memory:'); _ = database.execute('create table t (a)')\n"
            "_ = database.execute('insert into t values (7)'); numbers = iter(range(9)); next(numbers)\n"
            "file = open('file', 'w+'); _ = file.write('one two'); _ = file.seek(4); address = id(numbers)"
        )
        assert runtime.execute(code).success
        runtime.hibernate()
        platforms.kill()
        platforms.up()
        ask = "print(next(numbers), database.execute('select a from t').fetchone(), file.read())"
        assert "1 (7,) two\n" == runtime.execute(ask).stdout
        assert "True" == runtime.execute("id(numbers) == address").value  # by value, it is another object


@pytest.mark.slow
@pytest.mark.skipif(machine() != "x86_64", reason="images are for x86-64")
@pytest.mark.timeout(120)
def test_an_idle_durable_runtime_goes_on_exactly_after_a_kill(platforms: Platforms, tmp_path: Path) -> None:
    """It was awake, with a generator and a transaction that nothing but an image of its process has."""
    with PythonRuntime(
        address=platforms.address, token=platforms.token, name="r", durable=True, sandbox=SANDBOX
    ) as runtime:
        code = (
            "import sqlite3, time\nmoments = (each for each in [time.time(), 2, 3]); _ = next(moments)\n"
            "database = sqlite3.connect(':memory:'); _ = database.execute('create table t (a)')\n"
            "_ = database.execute('insert into t values (7)')"
        )
        assert "`moments` is not durable" in "".join(runtime.execute(code).news)
        until(lambda: [*tmp_path.rglob("*.image")])
        platforms.kill()
        platforms.up()
        ask = "print(next(moments), database.in_transaction, database.execute('select a from t').fetchone())"
        assert "2 True (7,)\n" == runtime.execute(ask).stdout


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_no_answered_step_is_lost(platforms: Platforms) -> None:
    """Three times in a row, with two clients that keep working."""
    kill(platforms, 3)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_answered_step_is_lost_in_the_long_run(platforms: Platforms) -> None:
    """Two hundred times."""
    kill(platforms, 200)
