"""An idle worker ends and is made again for the next request, without visible effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.behaviour.snapshots.test_told_states import CRASH, cells, come_to
from tests.support.processes import children_of, kill
from tests.support.snapshots.fixtures import MakeRuntime
from tests.support.snapshots.parked import is_parked, park_at_once

from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import Rollback
from cenote_worker.supervisor import worker_failover
from cenote_worker.supervisor.account.worker_process import pid_of

TELLABLE = "x = 1\ndef f(): return x\nwith open('file', 'w') as file: file.write('text')"

UNTELLABLE = {
    "import": "import colorsys",
    "class": "class C: pass",
    "decorated function": "import functools\n@functools.cache\ndef f(): return 1",
    "an object": "x = object()",
    "failure": "x = 1; 1 / 0",
    "random": "import random; x = random.random()",
    "thread": "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "process": "import subprocess; child = subprocess.Popen(['sleep', '60'])",
    "open file": "x = open('file', 'w')",
    "environment": "import os; os.environ['A'] = 'b'",
    "directory": "import os; os.chdir('/tmp')",
    "task": "import asyncio; task = asyncio.ensure_future(asyncio.sleep(60))",
}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    park_at_once(monkeypatch)


def warden_of(runtime: PythonRuntime) -> int:
    return pid_of(runtime.core.backend.supervisor._ends.pidfd)  # type: ignore[attr-defined]


def ran(runtime: PythonRuntime, code: str) -> str | None:
    """Facts about a runtime whose worker ends after the cell."""
    result = runtime.execute(code)
    assert ("kept", "", ()) == (result.state, result.unkept, result.news)
    assert result.success, result.error
    assert is_parked(runtime)
    return result.value


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["strict", "landlock", "none"])
def test_it_ends_and_comes_again(make_runtime: MakeRuntime, isolation: str) -> None:
    """Only the warden and its memory remain; the runtime counts as alive, and the snapshots remain."""
    runtime = make_runtime(isolation=isolation)
    for step in range(1, 4):
        assert str(step) == ran(runtime, f"x = {step}; y{step} = [x]; x")
        assert [] == children_of(warden_of(runtime))
        status = runtime.status()
        assert 0 < status.memory < 2**24
        assert 1 == status.processes
        assert list(range(step + 1)) == [info.step for info in runtime.snapshots()]
    assert "'3[1][2][3]'" == ran(runtime, "f'{x}{y1}{y2}{y3}'")


@pytest.mark.sweep
@pytest.mark.parametrize("code", UNTELLABLE.values(), ids=UNTELLABLE.keys())
def test_a_state_that_cannot_be_made_again_keeps_its_worker(runtime: PythonRuntime, code: str) -> None:
    """The worker ends after the next cell, too; but not once the runtime was rolled back."""
    ran(runtime, "x = 0")
    for cell in (code, "y = 2"):
        runtime.execute(cell)
        assert not is_parked(runtime)
    assert 1 == runtime.rollback(1).step
    assert is_parked(runtime)
    assert "0" == ran(runtime, "x")


def test_what_was_brought_in_keeps_it(make_runtime: MakeRuntime) -> None:
    for brought in (Variable("given", 7), Function(len)):
        runtime = make_runtime()
        ran(runtime, "x = 1")
        runtime.inject(brought)
        assert not is_parked(runtime)
        assert "1" == runtime.execute("x").value


def test_every_kind_of_request_wakes_it(runtime: PythonRuntime) -> None:
    """Requests that change nothing included; afterwards the worker ends again."""
    ran(runtime, TELLABLE)
    assert 1 == runtime.retrieve("x")
    assert is_parked(runtime)
    assert ["x", "f", "file"] == [info.name for info in runtime.describe()]
    assert is_parked(runtime)
    assert b"text" == runtime.files.read("file")
    assert is_parked(runtime)
    assert 1 == runtime.snapshot("here").step
    ran(runtime, "x = 2")
    assert Rollback(step=1) == runtime.rollback("here")
    assert is_parked(runtime)
    assert "1" == ran(runtime, "x")


def test_other_authors(runtime: PythonRuntime) -> None:
    """Other authors find the state, and get notices; after cells of a private author the worker stays, since a new
    process knows nothing of their names."""
    ran(runtime, "x = 1")
    with runtime.attach("ana") as ana, runtime.attach("ben", scope="private") as ben:
        assert "1" == ana.execute("x").value
        assert is_parked(runtime)
        ran(runtime, "x = 1.5")
        assert is_parked(runtime)
        found = ana.execute("x = 1; x")
        assert ("1", ["x"]) == (found.value, [notice.name for notice in found.notices])
        assert ben.execute("x = 'own'").success
        assert not is_parked(runtime)
        assert ("'own'", "1") == (ben.execute("x").value, ana.execute("x").value)


@pytest.mark.slow
def test_each_request_is_carried_out_once(runtime: PythonRuntime) -> None:
    """Requests included that arrive while the worker is ending or starting."""
    ran(runtime, "count = 0")
    printed: list[str] = []
    for number in range(1, 101):
        code = "count += 1; print('line'); count"
        result = runtime.execute(code, on_output=lambda _, text: printed.append(text))
        assert (str(number), "line\n") == (result.value, result.stdout)
    assert 100 * "line\n" == "".join(printed)


@pytest.mark.slow
def test_it_falls_back_to_where_it_was(runtime: PythonRuntime) -> None:
    """A cell kills the process that was made for it, repeatedly."""
    for step in (1, 3, 5, 7, 9):
        ran(runtime, "x = 1")
        result = runtime.execute(CRASH)
        assert ("rolled_back", step) == (result.state, result.back_at)
    assert "1" == ran(runtime, "x")


def test_it_lives_without_its_line(runtime: PythonRuntime) -> None:
    """The new worker's first cell closes the line: no state is stored from then on, and nothing is lost."""
    ran(runtime, "x = 1")
    assert runtime.execute("import os; x = 2; os.close(4); os.close(5)").success
    assert ("2", "kept") == ((result := runtime.execute("x")).value, result.state)
    assert result.unkept


def test_failing_atomic_cells(runtime: PythonRuntime) -> None:
    ran(runtime, "x = 1")
    result = runtime.execute("x = 2; undefined", on_error="rollback")
    assert ("rolled_back", 1) == (result.state, result.back_at)
    assert is_parked(runtime)
    assert "1" == ran(runtime, "x")


def test_files_are_as_they_were_left(make_runtime: MakeRuntime) -> None:
    """Written by any process: where the directory is not the jail's alone, another process may have written there."""
    runtime = make_runtime(isolation="none")
    folder = Path(str(runtime.execute("import os; os.getcwd()").value).strip("'"))
    assert not is_parked(runtime)
    runtime.rollback(0)
    assert is_parked(runtime)
    ran(runtime, TELLABLE)
    (folder / "file").write_text("other")
    assert "'other'" == ran(runtime, "with open('file') as file: x = file.read()\nx")
    assert Rollback(step=2) == runtime.rollback(2)
    assert b"text" == runtime.files.read("file")


@pytest.mark.parametrize("limits", ["auto", "watchdog"])
def test_usage_is_that_of_the_cell(make_runtime: MakeRuntime, limits: str) -> None:
    """Counted in the process that exists by then."""
    runtime = make_runtime(limits=limits)
    ran(runtime, "x = 1")
    usage = runtime.execute("with open('file', 'w') as file: x = file.write('x' * 500_000)").usage
    assert usage is not None
    assert 500_000 <= usage.bytes_written
    assert usage.peak_memory > 0
    busy = runtime.execute("x = sum(range(3_000_000))").usage
    assert busy is not None
    assert busy.cpu > 0


def test_the_end_of_the_warden_is_the_jails(runtime: PythonRuntime) -> None:
    """With or without a worker."""
    ran(runtime, "x = 1")
    kill(warden_of(runtime))
    result = runtime.execute("x")
    assert ("lost", "killed") == (result.state, result.error and result.error.reason)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(cells, st.booleans()), min_size=4, max_size=12))
def test_pauses_change_nothing(program: list[tuple[str, bool]]) -> None:
    """Each cell has the same effects and the same trace as without pauses."""
    policy = SandboxPolicy(preload=())
    with (
        pytest.MonkeyPatch.context() as patch,
        PythonRuntime(sandbox=policy) as awake,
        PythonRuntime(sandbox=policy) as asleep,
    ):
        patch.setattr(worker_failover, "IDLE_SECONDS", 1000.0)
        assert awake.execute("x = y = 1; kept = []").success  # from now on it waits that long
        park_at_once(patch)
        assert asleep.execute("x = y = 1; kept = []").success
        assert is_parked(asleep)
        for code, pauses in program:
            assert come_to(awake.execute(code)) == come_to(asleep.execute(code))
            if pauses:
                is_parked(asleep)
