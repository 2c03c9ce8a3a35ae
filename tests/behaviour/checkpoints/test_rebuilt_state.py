"""Values that no checkpoint can contain, in real jails: running steps again restores them, without other effects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.rebuilding.cells import run

from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, foretold
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.checkpoints.errors import IncompleteRestoreError
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.images import ProcessImages
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.supervisor import Supervisor

Make = Callable[..., PythonRuntime]

SANDBOX = SandboxPolicy(preload=(), snapshots="none")


@pytest.fixture(autouse=True)
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that goes on by its image has nothing to rebuild."""
    monkeypatch.setattr(ProcessImages, "begin", lambda *_, **__: None)


class Lives:
    """One runtime, closed and restored repeatedly, with the client's objects each time."""

    def __init__(self, make: Make, folder: Path, functions: tuple[Function, ...] = ()) -> None:
        self._make, self._folder, self._functions = make, folder, functions
        self.runtime = make(store=folder, name="r", sandbox=SANDBOX, functions=functions)

    def again(self, **options: object) -> PythonRuntime:
        """Restores the runtime as another process would: only from the store."""
        self.runtime.checkpoint()
        self.runtime.close()
        options = {"sandbox": SANDBOX, "functions": self._functions, **options}
        self.runtime = self._make(PythonRuntime.restore, self._folder, "r", **options)
        return self.runtime


@pytest.fixture
def lives(make_runtime: Make, folder: Path) -> Lives:
    return Lives(make_runtime, folder)


GENERATOR = (
    "data = [1, 2, 3, 4, 5]\ng = (x * 2 for x in data)",
    "a = next(g)",
    "b = next(g)",
    "data.append(9)",
)


def test_a_generator_goes_on_where_it_was(lives: Lives, folder: Path) -> None:
    """With the list that it shares, over several lives, and without unnecessary steps."""
    run(lives.runtime, *GENERATOR, "import time; now = time.time()")
    assert "6" == run(lives.again(), "next(g)")
    told = foretold(folder, "r")
    assert (("data", "g"), (1, 2, 3, 4), True) == (told.rebuilt, told.steps, told.complete)
    assert "rebuilt by running again step 1, 2, 3, 4: data, g" in str(told)
    assert "[8, 10, 18, 0]" == run(lives.again(), "data.append(0)", "list(g)")
    assert "(2, 4, 0)" == run(lives.again(), "a, b, sum(g)")


def test_a_connection_in_memory_is_filled_again(lives: Lives) -> None:
    """It may refer to anything: so all values come from the steps, and are unchanged."""
    run(
        lives.runtime,
        "import sqlite3\nconn = sqlite3.connect(':memory:')\nconn.execute('create table t (x)');",
        "rows = [(1,), (2,)]",
        "conn.executemany('insert into t values (?)', rows);",
        "rows.append((3,))",
    )
    assert "((3,), 3)" == run(lives.again(), "conn.execute('select sum(x) from t').fetchone(), len(rows)")


def test_locks_and_open_files_are_there_again(lives: Lives) -> None:
    """A closure over a lock continues to count; files are open at their positions, and are the existing ones."""
    run(
        lives.runtime,
        "import threading\ndef make():\n    lock, n = threading.Lock(), [0]\n    def up():\n"
        "        with lock: n[0] += 1\n        return n[0]\n    return up\nup = make()",
        "up();",
        "import os; os.mkdir('d'); open('d/in.txt', 'w').write('a\\nb\\n');",
        "f = open('d/in.txt'); line = f.readline(); w = open('out.txt', 'w'); w.write('x');",
        "w.flush(); w.write('y');",
    )
    again = lives.again()
    assert "(2, 'a\\n', 'b\\n')" == run(again, "up(), line, f.readline()")
    assert "'xyz'" == run(again, "w.write('z'); w.close(); open('out.txt').read()")


def test_running_steps_again_leaves_nothing_but_what_they_are_run_for(lives: Lives) -> None:
    """Variables, files, environment, directory and random numbers have their final values."""
    run(
        lives.runtime,
        "import os, random\nrandom.seed(1); other = [1]\nopen('gone', 'w').write('x'); os.mkdir('sub')\n"
        "os.environ['MODE'] = 'first'\ng = (i + random.random() for i in range(9))",
        "first = next(g)",
        "os.remove('gone'); os.environ['MODE'] = 'second'; os.chdir('sub'); other = 2; random.seed(9)",
    )
    ask = "other, os.listdir('..'), os.environ['MODE'], os.path.basename(os.getcwd()), random.getstate()[1][0], first"
    expected = run(lives.runtime, ask)
    again = lives.again()
    assert expected == run(again, ask)
    assert "True" == run(again, "random.seed(1); r = random.random(); second = next(g)\nfirst == r != second")


def test_host_calls_are_answered_from_the_record(make_runtime: Make, folder: Path) -> None:
    """No external call is repeated; a step that makes another call ends the restore."""
    calls = list[str]()

    def send(text: str) -> int:
        calls.append(text)
        return len(calls)

    lives = Lives(make_runtime, folder, (Function(send, host=True),))
    run(lives.runtime, "n = send('a')\ng = (n + x for x in range(9))", "next(g);", "m = send('b')")
    assert "(2, 2)" == run(lives.again(), "next(g), m")
    assert ["a", "b"] == calls
    run(lives.runtime, "up = float(open('/proc/uptime').read().split()[0])\nh = (x for x in [send(str(up))])")
    with pytest.raises(
        IncompleteRestoreError, match="calls send outside in a way that the record does not answer"
    ):
        lives.again().execute("1")
    assert 3 == len(calls)


def test_what_turns_out_otherwise_is_an_error(lives: Lives) -> None:
    """A step with untraced randomness gives another list: the restore does not continue with that."""
    run(lives.runtime, "a = 1", "data = [open('/proc/uptime').read()]; g = (x for x in data); next(g);")
    with pytest.raises(IncompleteRestoreError, match="step 2 leaves another data than the first time"):
        run(lives.again(), "1")


def test_what_is_left_can_be_had(lives: Lives) -> None:
    """A partial restore continues without the values that the steps do not give again."""
    run(lives.runtime, "a = [1]", "data = [open('/proc/uptime').read()]; g = (x for x in data); a.append(2)")
    again = lives.again(partial=True)
    assert "([1, 2], False)" == run(again, "a, 'g' in globals()")
    assert again.carried is not None
    assert any("step 2 leaves another data than the first time" in each for each in again.carried.missing)


def test_a_former_state_that_cannot_be_had_again_changes_nothing(lives: Lives) -> None:
    """Going back to it fails while it is filled; the next call has the present state."""
    run(lives.runtime, "a = 1", "data = [open('/proc/uptime').read()]; g = (x for x in data)")
    former = lives.runtime.checkpoint().number
    run(lives.runtime, "del g, data; a = 2")
    with pytest.raises(IncompleteRestoreError, match="another data than the first time"):
        lives.runtime.core.checkpoints.go_back(former)
    assert "2" == run(lives.runtime, "a")


def test_a_jail_that_has_just_been_stored_may_be_busy_for_a_moment(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call of the user's is under way, so going back is not refused."""
    run(lives.runtime, "a = 1")
    former = lives.runtime.checkpoint().number
    run(lives.runtime, "a = 2")
    busy, looks = Supervisor.busy.fget, iter([False, True, True])
    assert busy is not None
    monkeypatch.setattr(Supervisor, "busy", property(lambda self: next(looks, False) or busy(self)))
    lives.runtime.core.checkpoints.go_back(former)
    assert "1" == run(lives.runtime, "a")


def test_an_open_file_that_was_moved_is_not_another(lives: Lives) -> None:
    """Writes to it would be lost."""
    run(lives.runtime, "w = open('a', 'w')", "import os; os.rename('a', 'b')")
    with pytest.raises(
        IncompleteRestoreError, match="the file a was moved or deleted after it had been opened"
    ):
        run(lives.again(), "1")


@pytest.mark.slow
def test_a_runtime_that_reaches_out_repeats_only_what_is_known(make_runtime: Make, folder: Path) -> None:
    """A connection may lead outside; where the runtime has no way out, it does not matter."""
    (folder.parent / "out").mkdir()
    mounts = [Mount(source=str(folder.parent / "out"), target="/out", writable=True)]
    sandbox = SandboxPolicy(preload=(), snapshots="none", mounts=mounts)
    runtime = make_runtime(store=folder, name="r", sandbox=sandbox)
    run(runtime, "g = (x for x in 'ab')")
    runtime.checkpoint()
    assert foretold(folder, "r").complete
    run(runtime, "import sqlite3; conn = sqlite3.connect(':memory:'); conn.cursor();")
    runtime.checkpoint()
    assert "step 2 may have done something outside" in str(foretold(folder, "r"))


@pytest.mark.slow
def test_a_runtime_that_can_reach_out_by_now_does_not_repeat_what_is_not_known(
    lives: Lives, tmp_path: Path
) -> None:
    """Effects that were impossible for its steps the first time would be possible now."""
    run(lives.runtime, "import sqlite3; conn = sqlite3.connect(':memory:'); conn.cursor();")
    mounts = [Mount(source=str(tmp_path), target="/out", writable=True)]
    again = lives.again(sandbox=SandboxPolicy(preload=(), snapshots="none", mounts=mounts))
    with pytest.raises(IncompleteRestoreError, match="step 1 may have done something outside"):
        again.execute("1")


def test_a_sleeping_runtime_wakes_with_it(lives: Lives) -> None:
    """And a runtime whose jail was killed has it at the last checkpoint's position."""
    run(lives.runtime, *GENERATOR)
    lives.runtime.hibernate()
    assert "6" == run(lives.runtime, "next(g)")
    lives.runtime.hibernate()
    assert "8" == run(lives.runtime, "next(g)")


def test_each_step_of_a_durable_runtime_is_kept_with_it(make_runtime: Make, folder: Path) -> None:
    """Its record too: a step is recorded before it is acknowledged."""
    runtime = make_runtime(store=folder, name="r", durable=True, sandbox=SANDBOX)
    assert () == runtime.execute(GENERATOR[0]).news
    run(runtime, *GENERATOR[1:])
    backend = runtime.core.backend
    assert isinstance(backend, HostedRuntime)
    assert backend.supervisor is not None
    backend.supervisor.end(JailExit(reason="killed"))
    while runtime.core.running:
        time.sleep(0.001)
    assert "6" == run(runtime, "next(g)")


async def test_host_calls_belong_to_the_step_that_made_them(folder: Path) -> None:
    """Also where the next step runs while the state before it is still being stored."""

    def send(text: str) -> str:
        return text

    functions = [Function(send, host=True)]
    arguments = {"store": folder, "name": "r", "durable": True, "sandbox": SANDBOX}
    async with AsyncPythonRuntime(functions=functions, **arguments) as runtime:  # type: ignore[arg-type]
        await asyncio.gather(*(runtime.execute(f"send('{each}')") for each in "abcd"))
        steps = runtime.core.read_history().tree
        assert [1, 1, 1, 1] == [len(step.host_calls) for step in steps]


def test_a_history_that_begins_in_the_middle_says_so(make_runtime: Make, folder: Path) -> None:
    """Steps before a restore are not mistaken for the state of a fresh runtime."""
    runtime = make_runtime(store=folder, name="r", sandbox=SANDBOX)
    run(runtime, "a = [1]", "a.append(2)")
    runtime.checkpoint()
    runtime.close()
    again = make_runtime(PythonRuntime.restore, folder, "r", sandbox=SANDBOX)
    run(again, "g = (x for x in a)", "next(g);", "b = 1")
    again.checkpoint()
    assert ((3, 4), True) == (foretold(folder, "r").steps, foretold(folder, "r").complete)
    run(again, "a.append(3)")
    again.checkpoint()
    assert "nothing is recorded of what was done until step 2" in str(foretold(folder, "r"))
