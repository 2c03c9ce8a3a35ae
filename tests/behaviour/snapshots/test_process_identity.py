"""A process that replaces another, after a rollback, a patch or a crash, looks like that one to programs."""

from __future__ import annotations

import os

import pytest
from tests.support.snapshots.fixtures import MakeRuntime

from cenote.harness import Patch
from cenote.runtime import PythonRuntime
from cenote_worker.zygote.processes import left_session

ASKED = "(os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0))"


def value(runtime: PythonRuntime, expression: str) -> str:
    result = runtime.execute(expression)
    assert result.success, result.error
    assert result.value is not None
    return result.value


@pytest.fixture
def runtime(make_runtime: MakeRuntime) -> PythonRuntime:
    made = make_runtime()
    if made.isolation != "strict" or not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK):
        pytest.skip("numbers of processes cannot be chosen here")
    return made


def test_the_number_is_the_same(runtime: PythonRuntime) -> None:
    """After several rollbacks, a cell that ends its process, and a patch."""
    runtime.execute("import os")
    before = value(runtime, ASKED)
    steps = [runtime.execute(cell).step for cell in ("held = [0]", "held.append(1)", "held.append(2)")]
    runtime.rollback(steps[0])
    assert before == value(runtime, ASKED)
    runtime.rollback(steps[2])
    assert ("[0, 1, 2]", before) == (value(runtime, "held"), value(runtime, ASKED))
    assert "rolled_back" == runtime.execute("os._exit(1)").state
    assert before == value(runtime, ASKED)
    state = runtime.state
    assert "applied" == state.apply(state.plan(Patch.replace_step(steps[1], "held.append(5)"))).status
    assert ("[0, 5, 2]", before) == (value(runtime, "held"), value(runtime, ASKED))


def test_processes_of_a_cell_go_on_from_their_own_numbers(runtime: PythonRuntime) -> None:
    """A child of the copy lives on with its number; a later process has a higher one."""
    runtime.execute("import os, subprocess\nfirst = subprocess.Popen(['sleep', '1000'])")
    step = runtime.execute("x = [1]").step
    runtime.execute("second = subprocess.Popen(['sleep', '1000'])\nnumbers = first.pid, second.pid")
    runtime.rollback(step)
    runtime.execute("third = subprocess.Popen(['sleep', '1000'])")
    assert "True" == value(runtime, "third.pid > first.pid and os.path.exists(f'/proc/{third.pid}')")


def test_processor_time_never_goes_back(make_runtime: MakeRuntime) -> None:
    """By every function that returns it, and by a name that was bound to one of them before."""
    runtime = make_runtime()
    runtime.execute("import os, time, resource\nfrom time import process_time as kept\nsum(range(3_000_000))")
    asked = (
        "(time.process_time(), time.process_time_ns() / 1e9, time.thread_time(), kept(), os.times().user + "
        "os.times().system, time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID), "
        "sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))"
    )
    runtime.execute(f"def now(): return {asked}")
    step = runtime.execute("before = now()").step
    runtime.execute("held = [1]")
    for _ in range(2):
        runtime.rollback(step)
        # `os.times` counts in hundredths.
        assert "True" == value(runtime, "all(b - 0.02 <= n for b, n in zip(before, now()))")
        assert "True" == value(runtime, "max(now()) - min(now()) < 0.5")
    assert "rolled_back" == runtime.execute("os._exit(1)").state
    assert "True" == value(runtime, "before[0] < time.process_time() == kept() or before[0] < kept()")
    assert "'time'" == value(runtime, "time.process_time.__module__")


def test_a_copy_that_has_not_run_yet_is_waited_for() -> None:
    """Until it begins a session of its own, the pid of the worker that it was forked from is not free."""
    here, there = os.pipe()
    copy = os.fork()
    if copy == 0:
        os.close(there)
        os.read(here, 1)
        os.setsid()
        os.read(here, 1)
        os._exit(0)
    try:
        session = os.getsid(0)
        assert not left_session(session, [copy], 0.0)
        os.write(there, b".")
        assert left_session(session, [copy], 60.0)
        assert os.getsid(copy) == copy
    finally:
        os.close(there)
        os.close(here)
        os.waitpid(copy, 0)
    assert left_session(session, [copy], 0.0)
