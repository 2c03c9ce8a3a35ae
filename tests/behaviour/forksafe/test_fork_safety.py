"""The effect of a fork on libraries' threads: each library is really tried, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE

from cenote import PythonRuntime, SandboxPolicy
from cenote_security.walls.limits import SINGLE_THREADED
from cenote_worker.jail.forking.fork_safety import ForkSafety
from cenote_worker.jail.process import proc_info
from cenote_worker.jail.process.proc_info import NativeThread

LONG = 5 * PATIENCE
"""Seconds for an import, three computations and two forks of one: only a hang takes this long."""

pytestmark = pytest.mark.timeout(2 * LONG)

POOLS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS")
ALL_RIGHT = {"copy": True, "copy of the copy": True, "original": True}


def tried(library: str, fork: str = "python_fork", patience: float = PATIENCE) -> dict[str, Any]:
    program = Path(__file__).resolve().parents[2] / "support" / "forksafe" / "copies.py"
    environment = {**os.environ, **SINGLE_THREADED, **dict.fromkeys(POOLS, "2")}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(program), library, fork, str(patience)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONG)
    assert "" == done.stderr
    return json.loads(done.stdout)


def printed(program: str) -> str:
    """The output of a Python process without any other thread."""
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("fork", ["python_fork", "bare_fork"])
@pytest.mark.parametrize("library", ["numpy", "sklearn", "pyarrow", "tqdm", "duckdb"])
def test_libraries_compute_with_threads_in_a_copy(library: str, fork: str) -> None:
    """Their pools survive a fork, or were paused before it: in the copy, in its copy, and in the original."""
    result = tried(library, fork)
    assert [] == result["reasons"]
    assert ALL_RIGHT == result["right"]


def test_an_event_loop_goes_on_in_a_copy() -> None:
    """A loop is no thread."""
    result = tried("event_loop")
    assert [] == result["reasons"]
    assert ALL_RIGHT == result["right"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "owner"),
    [
        ("polars", "Polars"),
        ("duckdb_in_a_file", "DuckDB"),
        ("python_thread", "a user's"),
    ],
)
def test_what_a_copy_would_break_is_refused_by_name(library: str, owner: str) -> None:
    """And for good reason: a fork made all the same hangs, crashes or has lost its threads."""
    result = tried(library, patience=2)
    assert any(owner in reason for reason in result["reasons"])
    assert True is not result["right"]["copy"]


def test_a_process_without_threads_is_asked_nothing() -> None:
    """The common case: a fork costs nothing more than counting the threads."""
    program = (
        "import time; from cenote_worker.jail.forking.fork_safety import ForkSafety\n"
        "safety = ForkSafety()\n"
        "def seconds():\n"
        "    begin = time.process_time()\n"
        "    for _ in range(100): assert safety.make_quiet() == ()\n"
        "    return (time.process_time() - begin) / 100\n"
        "print(min(seconds() for _ in range(20)))"
    )
    assert 100e-6 > float(printed(program))


def test_the_worker_s_own_threads_are_not_in_the_way() -> None:
    """The caller knows what happens to them in a fork."""
    assert "1 0" == printed(
        "import threading; from cenote_worker.jail.forking.fork_safety import ForkSafety\n"
        "thread = threading.Thread(target=threading.Event().wait, daemon=True); thread.start()\n"
        "safety = ForkSafety(); print(len(safety.make_quiet()), len(safety.make_quiet(ours=[thread])))"
    )


def test_a_thread_that_python_does_not_list_is_seen() -> None:
    """`threading.enumerate` can be replaced, and never lists threads made by `_thread`."""
    assert "a thread of Python code is running: without a name" == printed(
        "import _thread, threading; started, never = threading.Event(), threading.Event()\n"
        "_thread.start_new_thread(lambda: (started.set(), never.wait()), ()); started.wait()\n"
        "threading.enumerate = lambda: []\n"
        "from cenote_worker.jail.forking.fork_safety import ForkSafety\n"
        "print(*ForkSafety().make_quiet())"
    )


LIBRARIES = """
import numpy as np; a = np.ones((500, 500)); a @ a
from cenote_worker.jail.forking.fork_safety import ForkSafety
safety = ForkSafety(); print(*safety.make_quiet())
import polars as pl; pl.DataFrame({"a": range(1000)}).lazy().group_by("a").len().collect()
"""

NAMED = """
import os, pathlib
tasks = pathlib.Path("/proc/self/task")
def names(): return [(task / "comm").read_text() for task in tasks.iterdir() if task.name != str(os.getpid())]
while (tasks / str(os.getpid()) / "comm").read_text() in names(): pass
"""
"""Waits until each thread has set its name: a new one has that of the process."""

LOOK = "print(*safety.make_quiet())"


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["strict", "none"])
def test_libraries_are_known_by_name_inside_a_jail(isolation: Any) -> None:
    """The kernel shows a jailed process its own threads' stacks."""
    with PythonRuntime(sandbox=SandboxPolicy(isolation=isolation, cpus=2)) as runtime:
        result = runtime.execute(LIBRARIES + NAMED + LOOK)
    assert "\nn threads of Polars\n" == re.sub(r"\d+", "n", result.stdout), result.error


@pytest.mark.slow
def test_without_a_look_into_proc_pools_are_paused_all_the_same() -> None:
    """At `landlock` a process may not list its threads: those left after the pause are of unknown origin."""
    with PythonRuntime(sandbox=SandboxPolicy(isolation="landlock", cpus=2)) as runtime:
        result = runtime.execute(LIBRARIES + LOOK)
    assert "\nn threads of unknown origin\n" == re.sub(r"\d+", "n", result.stdout), result.error


def test_a_thread_that_waits_for_a_processor_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a look takes longer than a thread needs for its work on an idle one."""
    waits = NativeThread(id=7, name="pool", library="libopenblas.so")
    seen = iter([replace(waits, library=""), replace(waits, library=""), waits])

    def look(_threads: object, _mapped: object) -> list[NativeThread]:
        threading.Event().wait(0.01)
        return [next(seen)]

    safety = ForkSafety()
    monkeypatch.setattr(proc_info, "other_threads", lambda _known=(): [7])
    monkeypatch.setattr(proc_info, "native_threads", look)
    assert [] == safety._look(())
    assert {7: waits} == safety._seen


def test_no_thread_is_waited_for_for_long() -> None:
    """A thread that computes without end prevents a fork, and is reported at once."""
    program = (
        "import threading, time, ctypes, os\n"
        "from cenote_worker.jail.forking.fork_safety import ForkSafety\n"
        "import hashlib; data = bytes(2**28)\n"
        "def compute():\n    while True: hashlib.sha256(data)\n"
        "threading.Thread(target=compute, daemon=True).start()\n"
        "begin = time.perf_counter(); reasons = ForkSafety().make_quiet()\n"
        "print(len(reasons), time.perf_counter() - begin < 5); os._exit(0)"
    )
    assert "1 True" == printed(program)
