"""Idle pools of libraries: the state is stored beside them, and a crash costs only its own cell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.waiting import until

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

_EXECUTOR = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)"
_PROCESSES = "from concurrent.futures import ProcessPoolExecutor\npool = ProcessPoolExecutor(2)"
_THREADS = "from multiprocessing.pool import ThreadPool\npool = ThreadPool(2)"
_POOL = "from multiprocessing import Pool\npool = Pool(2)"
_JOBLIB = "from joblib import Parallel, delayed"
_TOKENIZER = """
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(['hello world'] * 200, trainers.BpeTrainer(vocab_size=60))
"""

_SLOW_FORKS = """
import ctypes, functools, signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
hold = ctypes.CFUNCTYPE(None)(functools.partial(ctypes.PyDLL(None).usleep, 150_000))
ctypes.CDLL(None).__register_atfork(hold, None, None, None)
"""
"""Each fork holds the interpreter for longer than any thread of a pool sleeps: one waits for it by then."""

POOLS = {
    "executor": (_EXECUTOR, "list(pool.map(abs, [-1, 2]))", "[1, 2]"),
    "executor of an event loop": ("import asyncio", "await asyncio.to_thread(abs, -1)", "1"),
    "pool of threads": (_THREADS, "pool.map(abs, [-1, 2])", "[1, 2]"),
    "pool of processes": (_POOL, "pool.map(abs, [-1, 2])", "[1, 2]"),
    "executor of processes": (_PROCESSES, "list(pool.map(abs, [-1, 2]))", "[1, 2]"),
    "queue": ("import multiprocessing\nqueue = multiprocessing.Queue()\nqueue.put(1); queue.get()", "1", "1"),
    "joblib": (_JOBLIB, "Parallel(n_jobs=2)(delayed(abs)(i) for i in [-1, 2])", "[1, 2]"),
    "tokenizers": (_TOKENIZER, "len(tokenizer.encode_batch(['hello world'] * 200))", "200"),
}
"""The code that makes the pool, the code that uses it, and its result."""


@pytest.fixture(scope="module")
def shared() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=(), cpus=2)) as runtime:
        yield runtime


@pytest.fixture
def runtime(shared: PythonRuntime) -> PythonRuntime:
    """Without state of another test."""
    shared.reset()
    return shared


def value(runtime: PythonRuntime, code: str) -> str | None:
    result = runtime.execute(code)
    assert result.success, result.error
    assert "" == result.unkept
    assert "Traceback" not in result.stderr
    assert "forked" not in result.stderr  # as tokenizers print
    return result.value


def crash(runtime: PythonRuntime) -> None:
    """A crash that costs one cell."""
    result = runtime.execute("kept = 0; import os; os._exit(1)")
    assert "the namespace is as it was before the cell" in str(result.error)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", POOLS)
def test_a_crash_costs_one_cell_beside_a_pool_that_waits(runtime: PythonRuntime, kind: str) -> None:
    """And the pool works again afterwards, in a copy and in a copy of that."""
    make, use, expected = POOLS[kind]
    assert expected == value(runtime, f"{make}\n{use}")
    for kept in ("7", "8"):
        value(runtime, f"kept = {kept}")
        crash(runtime)
        assert kept == value(runtime, "kept")
        value(runtime, "between = object()")  # which needs a copy, too
        assert expected == value(runtime, use)


@pytest.mark.parametrize("kind", ["executor", "pool of threads"])
def test_a_copy_is_made_while_a_thread_asks_for_the_interpreter(runtime: PythonRuntime, kind: str) -> None:
    """Waiting threads are awake at times: for a signal, or to look at the pool. They do not hold its lock then."""
    make, use, expected = POOLS[kind]
    assert expected == value(runtime, f"{make}\n{_SLOW_FORKS}\n{use}")
    for kept in ("7", "8"):
        value(runtime, f"kept = {kept}")
        crash(runtime)
        assert kept == value(runtime, "kept")
        assert expected == value(runtime, use)


def test_hooks_of_forks_run_at_the_users_own_alone(runtime: PythonRuntime) -> None:
    """Also beside a pool, where the interpreter is prepared for a fork."""
    make, use, _ = POOLS["executor"]
    kinds = ("before", "after_in_child", "after_in_parent")
    hooks = ", ".join(f"{kind}=lambda: ran.append({number})" for number, kind in enumerate(kinds, 1))
    value(runtime, f"{make}\n{use}\nimport os\nran = []\nos.register_at_fork({hooks})")
    value(runtime, "kept = 7")
    crash(runtime)
    assert "[]" == value(runtime, "ran")
    fork = "if not (child := os.fork()): os._exit(sum(ran))\nos.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ran"
    assert "(3, [1, 3])" == value(runtime, fork)


@pytest.mark.parametrize(
    ("left", "named"),
    [
        ("threading.Thread(target=lambda: never.wait(), name='poller', daemon=True).start()", "poller"),
        ("timer = threading.Timer(1000, print); timer.daemon = True; timer.start()", "Thread-"),
        ("pool.submit(lambda: never.wait())", "ThreadPoolExecutor"),
    ],
    ids=["thread", "timer", "pool with work"],
)
def test_what_keeps_states_from_being_kept_is_said_before_it_costs_one(
    runtime: PythonRuntime, left: str, named: str
) -> None:
    """By the cell that causes it, and once."""
    result = runtime.execute(f"import threading\n{_EXECUTOR}\nnever = threading.Event()\n{left}")
    (line,) = result.news
    assert "no state can be kept from here on" in line
    assert named in line
    after = runtime.execute("1")
    assert ((), True) == (after.news, named in after.unkept)
    runtime.execute("never.set()")


@pytest.mark.parametrize(
    ("left", "named"),
    [
        (f"{_EXECUTOR}\npool.submit(never.wait)", "ThreadPoolExecutor"),
        ("threading.Thread(target=never.wait, name='waits').start()", "waits"),
        (
            "import asyncio\nloop = asyncio.new_event_loop()\n"
            "threading.Thread(target=loop.run_forever, name='loop').start()",
            "loop",
        ),
        ("import logging.handlers\nlogging.handlers.QueueListener(queue.Queue()).start()", "_monitor"),
    ],
    ids=["pool", "thread", "loop", "log listener"],
)
def test_so_is_a_thread_that_waits_in_a_librarys_code(runtime: PythonRuntime, left: str, named: str) -> None:
    """By the first cell that finds it waiting, and once."""
    first = runtime.execute(f"import queue, threading\nnever = threading.Event()\n{left}")
    (line,) = first.news or until(lambda: runtime.execute("1").news)
    assert "no state can be kept from here on" in line
    assert named in line
    after = runtime.execute("1")
    assert ((), True) == (after.news, named in after.unkept)


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
def test_of_an_idle_pool_nothing_is_said(runtime: PythonRuntime, pool: str) -> None:
    """Its threads may still be about to wait when the cell ends."""
    make, use, _ = POOLS[pool]
    results = [runtime.execute(code) for code in (f"{make}\n{use}", use)]
    assert [()] * 2 == [result.news for result in results]


def test_tokenizers_with_threads_that_the_user_has_asked_for_have_none_in_a_copy(
    runtime: PythonRuntime,
) -> None:
    """They would wait for those of the original for ever."""
    make, use, expected = POOLS["tokenizers"]
    variable = "os.environ['TOKENIZERS_PARALLELISM']"
    assert expected == value(runtime, f"import os\n{variable} = 'true'\n{make}\n{use}")
    value(runtime, "kept = 7")
    crash(runtime)
    assert expected == value(runtime, use)
    assert "('true', 7)" == value(runtime, f"{variable}, kept")


@pytest.mark.slow
def test_a_crash_costs_one_cell_with_jobs_of_scikit_learn(runtime: PythonRuntime) -> None:
    """`n_jobs` leaves processes, and threads that serve them, for minutes."""
    make = """
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
X = np.arange(200.0).reshape(100, 2) / 200
y = X[:, 0] > 0.5
"""
    use = "len(cross_val_score(LogisticRegression(), X, y, n_jobs=2))"
    assert "5" == value(runtime, make + use)
    value(runtime, "kept = 7")
    crash(runtime)
    assert "7" == value(runtime, "kept")
    assert "5" == value(runtime, use)
