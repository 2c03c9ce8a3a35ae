"""Programs that resist their end, or attack the process that started them. Each stays within its jail."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from tests.support.escape.arena import unconfined, warden_of, worker_of
from tests.support.processes import parent_of, runs, title, tree_of
from tests.waiting import PATIENCE, until

from cenote.runtime import PythonRuntime
from cenote_security.errors import UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.zygote.warden.programs import MOST

LONG = "3600"


def python(source: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", source]


def left_of(runtime: PythonRuntime, mark: str) -> list[int]:
    """Processes of the jail with this text in their command line."""
    return [pid for pid in tree_of(warden_of(runtime)) if mark in title(pid) and runs(pid)]


ESCAPES = {
    "ignores every signal": "import signal, time\n"
    "for n in range(1, 65):\n try: signal.signal(n, signal.SIG_IGN)\n except (OSError, ValueError): pass\n"
    "print('up', flush=True); time.sleep(3600)",
    "a session and a parent of its own": "import os, time\n"
    "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  os.setsid(); print('up', flush=True)\n"
    "  time.sleep(3600)\n os._exit(0)\nos.wait(); time.sleep(3600)",
    "forks on and on": "import os, time\nprint('up', flush=True)\n"
    "while True:\n try:\n  if os.fork() == 0: os.setsid()\n except OSError: pass",
    "hops from parent to child": "import os, time\nprint('up', flush=True)\n"
    "if os.fork(): time.sleep(3600)\n"
    "while True:\n try:\n  if os.fork(): os._exit(0)\n except OSError: pass",
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_nothing_of_it_is_left_behind_its_time(walled: PythonRuntime, escape: str) -> None:
    """For any way of forking: the whole tree has ended, and the namespace is unchanged."""
    mark = f"#{abs(hash(escape))}"
    worker = worker_of(walled)
    process = walled.spawn(python(f"{ESCAPES[escape]}\n{mark}"), timeout=PATIENCE)
    assert b"up" in process.stdout.read_some()
    assert left_of(walled, mark)
    process.kill()
    assert process.wait(PATIENCE).killed_by in ("kill", "signal 9")
    until(lambda: not left_of(walled, mark))
    assert worker == worker_of(walled)
    assert "1" == walled.execute("x").value


def test_time_over_ends_the_tree(walled: PythonRuntime) -> None:
    mark = "#timed"
    result = walled.run(python(ESCAPES["a session and a parent of its own"] + f"\n{mark}"), timeout=1)
    assert result.timed_out
    until(lambda: not left_of(walled, mark))


def test_what_it_leaves_in_the_background_goes_on_and_holds_nobody(walled: PythonRuntime) -> None:
    """The pipe is still open in a process that never ends: the caller gets its answer anyway."""
    result = walled.run("echo started; sleep 3599 &")
    assert (0, "started\n") == (result.exit_code, result.stdout)
    until(lambda: left_of(walled, "sleep 3599"))
    walled.run("true")
    assert left_of(walled, "sleep 3599")
    assert "1" == walled.execute("x").value


def test_one_that_floods_behind_its_end_is_not_read_for_ever(strict: PythonRuntime) -> None:
    result = strict.run("(yes flood & ) ; sleep 0.2; exit 3", timeout=PATIENCE)
    assert 3 == result.exit_code
    until(lambda: not left_of(strict, "yes flood"))  # by the signal of its broken pipe


def test_its_attendant_is_out_of_reach(walled: PythonRuntime) -> None:
    """Neither signals nor memory: no program can end the process that would end it."""
    attack = """
import os, signal
parent = os.getppid()
for number in (0, signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM):
    try:
        os.kill(parent, number)
        print("reached", number)
    except (PermissionError, ProcessLookupError):
        pass
for name in ("mem", "environ", "fd/3", "maps"):
    try:
        open(f"/proc/{parent}/{name}", "rb").read(1)
        print("opened", name)
    except OSError:
        pass
try:
    os.kill(-1, signal.SIGKILL)
except OSError:
    pass
print("done")
"""
    worker = worker_of(walled)
    assert ("done\n", 0) == ((result := walled.run(python(attack))).stdout, result.exit_code)
    assert worker == worker_of(walled)


def test_every_process_of_it_is_confined(walled: PythonRuntime) -> None:
    """The attendant too: no capability, no new privileges, the filter; as seen from outside."""
    with walled.spawn("sleep 3600 & sleep 3600") as process:
        assert process.pid
        until(lambda: len(tree_of(warden_of(walled))) >= 5)
        assert [] == unconfined(warden_of(walled))


def test_two_programs_do_not_reach_each_other(walled: PythonRuntime) -> None:
    with walled.spawn(["sleep", LONG]) as process:
        reach = f"import os\ntry:\n os.kill({process.pid}, 9)\nexcept OSError as e:\n print(e.errno)"
        assert walled.run(python(reach)).stdout in ("1\n", "3\n")
        assert process.running


def test_one_that_writes_to_its_standard_input(strict: PythonRuntime) -> None:
    """It is read-only there; reopened by its name in `/proc` it is its own pipe, and not another process's."""
    attack = """
import os
for number in (0, 1, 2):
    for flags in (os.O_RDONLY | os.O_NONBLOCK, os.O_WRONLY | os.O_NONBLOCK):
        try:
            descriptor = os.open(f"/proc/self/fd/{number}", flags)
            if flags & os.O_WRONLY:
                os.write(descriptor, b"!")
        except OSError:
            pass
import fcntl
for number in (0, 1, 2):
    fcntl.fcntl(number, fcntl.F_SETFL, 0)
    try:
        fcntl.fcntl(number, 1031, 1 << 20)
    except OSError:
        pass
print("done")
"""
    result = strict.run(python(attack), stdin="x", timeout=PATIENCE)
    assert 0 == result.exit_code
    assert "done" in result.stdout
    assert 0 == strict.run("true").exit_code


def test_memory_of_a_program_costs_the_namespace_nothing() -> None:
    """Only the program exceeds the limit: it is ended, by the kernel or before, and the cell's state stays."""
    policy = SandboxPolicy(preload=(), memory="256MiB", limits="watchdog")
    with PythonRuntime(sandbox=policy) as runtime:
        runtime.execute("x = 1")
        hog = "import os, time\n"
        hog += "for _ in range(3):\n if os.fork() == 0: break\n"
        hog += "data = [bytearray(1 << 20) for _ in range(200)]\nfor d in data: d[::4096] = b'x' * 256\n"
        hog += "time.sleep(3600)"
        result = runtime.run(python(hog), timeout=PATIENCE)
        assert "memory" == result.killed_by
        assert "1" == runtime.execute("x").value


def test_it_cannot_trace(walled: PythonRuntime) -> None:
    trace = (
        "import ctypes; print(ctypes.CDLL(None, use_errno=True).ptrace(16, __import__('os').getppid(), 0, 0))"
    )
    assert "-1\n" == walled.run([sys.executable, "-c", trace]).stdout


def test_it_writes_to_every_descriptor(strict: PythonRuntime) -> None:
    """None belongs to the worker or its attendant: what the program writes is its own output."""
    flood = "import os\nfor n in range(1024):\n try: os.write(n, b'\\x00{}')\n except OSError: pass"
    result = strict.run(python(flood))
    assert (b"\x00{}", b"\x00{}") == (result.stdout_bytes, result.stderr_bytes)
    assert "1" == strict.execute("x").value


def test_cells_and_programs_do_not_signal_each_other(strict: PythonRuntime) -> None:
    with strict.spawn(["sleep", LONG]) as process:
        cell = f"import os\ntry:\n os.kill({process.pid}, 9)\nexcept PermissionError:\n print('no')"
        assert "no\n" == strict.execute(cell).stdout
        assert process.running


def test_too_many_are_refused(strict: PythonRuntime) -> None:
    """In one sentence; running ones continue, and there is room again when they have ended."""
    running = []
    while len(running) <= MOST:
        running.append(strict.spawn(["sleep", LONG]))
        if running[-1].pid == 0:
            break
    with pytest.raises(UnavailableError, match="cannot begin another process"):
        running[-1].wait(PATIENCE)
    for process in running:
        process.kill()
    for process in running[:-1]:
        process.wait(PATIENCE)
    assert 0 == strict.run("true").exit_code


def test_an_attendant_that_is_killed_takes_its_program_along(strict: PythonRuntime) -> None:
    """As the machine's out-of-memory killer may do: no process of the program remains."""
    mark = "#orphaned"
    process = strict.spawn(python(ESCAPES["a session and a parent of its own"] + f"\n{mark}"))
    assert b"up" in process.stdout.read_some()
    warden = warden_of(strict)
    marked = [pid for pid in tree_of(warden) if mark in title(pid)]
    (attendant,) = {parent_of(pid) for pid in marked} - {warden, *marked}
    os.kill(attendant, signal.SIGKILL)
    assert process.wait(PATIENCE).exit_code is None
    until(lambda: not left_of(strict, mark))
    assert "1" == strict.execute("x").value
