"""A cell cannot destroy the state: however its process ends, the namespace is as it was before the cell."""

from __future__ import annotations

import os
import time

import pytest
from tests.support.overdue import overdue
from tests.support.snapshots.fixtures import MakeRuntime
from tests.waiting import PATIENCE, until

from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.errors import RolledBackError
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import ExecutionResult

pytestmark = pytest.mark.usefixtures("where")

DEATHS = {
    "segfault": ("import ctypes; ctypes.string_at(0)", "signal 11"),
    "abort": ("import os; os.abort()", "signal 6"),
    "exit": ("import os; os._exit(3)", "exit"),
    "clean exit": ("import os; os._exit(0)", "exit"),
    "kill": ("import os; os.kill(os.getpid(), 9)", "killed"),
    "term": ("import os, signal; signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", "signal 15"),
    "descriptors": ("import os; os.closerange(3, 64)", "exit"),
    "stack": (
        # In C alone: since 3.12 Python counts its own frames there, and refuses one too many.
        "import ctypes; ctypes.CDLL(None).regcomp(ctypes.create_string_buffer(4096), b'(' * 10**6, 1)",
        "signal 11",
    ),
}

IGNORES_INTERRUPTS = """
import signal; signal.signal(2, signal.SIG_IGN)
print("begun", flush=True); x = "changed"
while True: pass
"""


def ok(result: ExecutionResult) -> str | None:
    assert result.success, result.error
    return result.value


def survived(runtime: PythonRuntime) -> bool:
    """Whether the namespace of `prepare` exists, generator and array included, and works."""
    return ok(runtime.execute("x, next(g), float(a.sum()), f(1)")) == "(1, 1, 10.0, 2)"


def prepare(runtime: PythonRuntime) -> None:
    ok(runtime.execute("import numpy as np\nx = 1; a = np.ones(10); g = (i for i in range(9)); next(g)"))
    ok(runtime.execute("f = lambda n: n + x"))


@pytest.mark.sweep
@pytest.mark.parametrize(("code", "reason"), DEATHS.values(), ids=DEATHS.keys())
def test_each_kind_of_death(runtime: PythonRuntime, code: str, reason: str) -> None:
    """The result says why, and that the state is as before the cell; the next cell has all of it."""
    prepare(runtime)
    result = runtime.execute(f"x = 'changed'; next(g); a[:] = 0; print('said')\n{code}")
    assert ("rolled_back", reason, 2) == (
        result.state,
        result.error.reason if result.error else "",
        result.back_at,
    )
    assert "as it was before the cell" in str(result.error)
    assert "said\n" == result.stdout
    assert survived(runtime)


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["strict", "landlock", "none"])
def test_at_each_level(make_runtime: MakeRuntime, isolation: str) -> None:
    """Repeatedly."""
    runtime = make_runtime(isolation=isolation)
    prepare(runtime)
    for _ in range(3):
        assert "rolled_back" == runtime.execute("x = 2; import os; os.abort()").state
    assert survived(runtime)
    ok(runtime.execute("x = 5"))
    assert "rolled_back" == runtime.execute("x = 6; import os; os.abort()").state
    assert "5" == ok(runtime.execute("x"))


def test_the_first_cell(runtime: PythonRuntime) -> None:
    """The injected values exist."""
    result = runtime.execute("import os; os._exit(1)")
    assert ("rolled_back", 0) == (result.state, result.back_at)
    assert "2" == ok(runtime.execute("1 + 1"))


@pytest.mark.at("embedded", "platform")
def test_a_cell_that_ignores_its_interrupt(hasty: None, runtime: PythonRuntime) -> None:
    """It is killed after a while, and the state before it continues."""
    prepare(runtime)
    result = overdue(runtime, IGNORES_INTERRUPTS)
    assert ("TimeoutError", "time", "rolled_back") == (result.error.type, result.error.reason, result.state)  # type: ignore[union-attr]
    assert survived(runtime)


def test_a_stopped_cell(hasty: None, runtime: PythonRuntime) -> None:
    """A process that stops itself receives no interrupt; it can still be killed."""
    prepare(runtime)
    result = overdue(runtime, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")
    assert ("time", "rolled_back") == (result.error.reason, result.state)  # type: ignore[union-attr]
    assert survived(runtime)


@pytest.mark.slow
@pytest.mark.parametrize("limits", ["auto", "watchdog"])
def test_memory(make_runtime: MakeRuntime, limits: str) -> None:
    """Whichever process enforces the limit, the state before the cell continues, with a reason that names memory."""
    runtime = make_runtime(memory="256MiB", limits=limits)
    prepare(runtime)
    # No limit of a single process covers memory files.
    bomb = "import os\nheld = [os.memfd_create('x') for _ in range(8)]\nfor one in held: os.write(one, b'x' * 2**26)"
    result = runtime.execute(f"x = 'changed'\n{bomb}\nimport time; time.sleep(600)")
    assert ("memory", "rolled_back") == (result.error.reason, result.state)  # type: ignore[union-attr]
    assert survived(runtime)


@pytest.mark.at("embedded", "platform")
def test_what_the_cell_had_started_ends_with_it(runtime: PythonRuntime) -> None:
    """Its processes and their descendants end; those of earlier cells continue."""
    prepare(runtime)
    ok(runtime.execute("import subprocess; early = subprocess.Popen(['sleep', '100'])"))
    result = runtime.execute("late = [subprocess.Popen(['sh', '-c', 'sleep 99 & sleep 99']) for _ in range(3)]\n"
                             "import os; os._exit(1)")  # fmt: skip
    assert "rolled_back" == result.state
    assert 2 == runtime.status().processes
    assert "`early`" in str(result.error)


def test_a_fork_bomb_in_the_dying_cell(make_runtime: MakeRuntime) -> None:
    """No process of it is left."""
    runtime = make_runtime(processes=32)
    prepare(runtime)
    bomb = "import os\nfor _ in range(6):\n    try: os.fork()\n    except OSError: pass"
    code = f"pid = __import__('os').getpid()\n{bomb}\nif os.getpid() == pid: os._exit(1)\nelse:\n    while True: pass"
    assert "rolled_back" == runtime.execute(code).state
    assert 1 == runtime.status().processes
    assert survived(runtime)


def test_a_death_between_cells(runtime: PythonRuntime) -> None:
    """The death is reported once: by a cell that does not run, by one that dies, or in a notice of a later one."""
    ok(runtime.execute("x = 1"))
    first = runtime.execute("import threading, os; threading.Timer(0.3, os._exit, (9,)).start(); x = 2")

    def told() -> bool:
        result = runtime.execute("y = 1")
        return result.state == "rolled_back" or any("after step 1" in line for line in result.news)

    if first.state != "rolled_back":  # it may take longer than that
        until(told)
    assert "1" == ok(runtime.execute("x"))


def test_threads_stand_in_the_way(runtime: PythonRuntime) -> None:
    """With threads nothing is copied, and the next result says so; a crash restores the last state without them."""
    ok(runtime.execute("x = 1"))
    ok(
        runtime.execute(
            "import threading\nstop = threading.Event()\nt = threading.Thread(target=stop.wait)\nt.start(); x = 2"
        )
    )
    assert "threads were running" in runtime.execute("x").unkept
    result = runtime.execute("import os; os._exit(1)")
    assert ("rolled_back", 1) == (result.state, result.back_at)
    assert "after step 1" in str(result.error)
    assert "1" == ok(runtime.execute("x"))


def test_threads_of_libraries_that_survive(make_runtime: MakeRuntime) -> None:
    """OpenBLAS has threads, and handlers that the C library's fork runs: its threads work in the successor."""
    runtime = make_runtime(cpus=2, preload=())
    ok(runtime.execute("import os; os.environ['OPENBLAS_NUM_THREADS'] = '2'\nimport numpy as np"))
    threads = "a = np.ones((600, 600)); b = a @ a\nlen(os.listdir('/proc/self/task')) > 1"
    assert "True" == ok(runtime.execute(threads))
    result = runtime.execute("a[:] = 0; os._exit(1)")
    assert ("rolled_back", 2) == (result.state, result.back_at)
    assert "600.0" == ok(runtime.execute("float((a @ a)[0, 0])", timeout=PATIENCE))
    code = "try: os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError: r = 'none'\nr"
    assert "'none'" == ok(runtime.execute(code))


def test_output_and_interrupts_work_in_the_successor(runtime: PythonRuntime) -> None:
    """Code that knew the old process number knows the new one."""
    runtime.execute("import os; os._exit(1)")
    result = runtime.execute(
        "import subprocess, sys\nprint('a')\nsubprocess.run(['echo', 'b'])\nprint('c', file=sys.stderr)"
    )
    assert ("a\nb\n", "c\n") == (result.stdout, result.stderr)
    result = runtime.execute("import time; time.sleep(600)", timeout=0.2)
    assert ("time", "kept") == (result.error.reason, result.state)  # type: ignore[union-attr]
    assert result.usage.cpu < 1
    assert "4" == ok(runtime.execute("import asyncio; await asyncio.to_thread(lambda: 4)"))


def test_an_event_loop_goes_on(runtime: PythonRuntime) -> None:
    """The dead process's loop cannot serve its successor, which gets a new one."""
    ok(runtime.execute("import asyncio; lock = asyncio.Lock(); await asyncio.sleep(0)"))
    runtime.execute("import os; os._exit(1)")
    assert "5" == ok(runtime.execute("async with lock:\n    v = await asyncio.to_thread(lambda: 5)\nv"))


def test_host_functions_can_still_be_called() -> None:
    """Calls of the dead process are cancelled; its successor's are answered."""
    with PythonRuntime(functions=[Function(lambda n: n + 1, name="add", host=True)]) as runtime:
        assert "2" == ok(runtime.execute("add(1)"))
        assert "rolled_back" == runtime.execute("add(2); import os; os._exit(1)").state
        assert "6" == ok(runtime.execute("add(5)"))


class Deadly:
    """Kills any process that rebuilds it."""

    def __reduce__(self) -> object:
        return os._exit, (7,)


def test_host_functions_reach_a_process_that_has_not_got_the_first_ones() -> None:
    """The line of their calls is lost with the process that it was given to, and so is the request: its successor
    gets the line with the next.
    """
    add = Function(lambda n: n + 1, name="add", host=True)
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        ok(runtime.execute("x = 1"))
        runtime.snapshot()  # otherwise the rollback might restore the state before
        for _ in range(2):
            with pytest.raises(RolledBackError, match="ended by itself: exit status 7"):
                runtime.inject(add, Variable("deadly", Deadly()))
        runtime.inject(add)
        assert "(2, 1)" == ok(runtime.execute("add(1), x"))
        result = runtime.execute("add(2); import os; os._exit(3)")
        assert "the cell ended the runtime's process: exit status 3" in str(result.error)
        runtime.inject(Function(lambda n: 10 * n, name="times", host=True))
        assert "(6, 50)" == ok(runtime.execute("add(5), times(5)"))


def test_a_fault_of_our_own_is_not_put_down_to_the_cell() -> None:
    """The result says so, and where, and costs no more than a crash: here a cell has broken the request code."""
    broken = """
import gc
for each in gc.get_objects():
    if type(each).__name__ == "Worker" and type(each).__module__.startswith("cenote_worker"):
        each._answer = None
"""
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        ok(runtime.execute("kept = 1"))
        ok(runtime.execute(broken))
        result = runtime.execute("kept")
        assert "a fault of Cenote's own (please report what is on stderr)" in str(result.error)
        assert "TypeError: 'NoneType' object is not callable" in result.stderr
        assert "1" == ok(runtime.execute("kept"))


def test_without_snapshots(make_runtime: MakeRuntime) -> None:
    """The state is lost, and each result says that none is stored."""
    runtime = make_runtime(snapshots="none")
    assert "keeps no snapshots" in runtime.execute("x = 1").unkept
    assert "lost" == runtime.execute("import os; os._exit(1)").state


@pytest.mark.slow
def test_it_is_quick(runtime: PythonRuntime) -> None:
    """The target is 50 ms at 500 MB; ten times that, at best, fails on any machine. A busy machine gets several
    tries.
    """
    ok(runtime.execute("import numpy as np; a = np.ones(2**26)"))

    def seconds() -> float:
        started = time.perf_counter()
        assert "rolled_back" == runtime.execute("import os; os.kill(os.getpid(), 9)").state
        return time.perf_counter() - started

    assert any(seconds() < 0.5 for _ in range(6))
    assert "67108864.0" == ok(runtime.execute("float(a.sum())"))
