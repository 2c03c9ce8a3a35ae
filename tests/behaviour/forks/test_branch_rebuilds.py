"""Values that cannot be copied into a branch are made again there, in real jails: by the rules of a restore."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.rebuilding.cells import run

from cenote.agent import CaveAgent
from cenote.models import ScriptedModel
from cenote.runtime import Function, IncompleteForkError, PythonRuntime, Variable
from cenote_security.policy import SandboxPolicy

Make = Callable[..., PythonRuntime]
Fork = Callable[..., list[PythonRuntime]]

SANDBOX = SandboxPolicy(preload=(), snapshots="none")


@pytest.fixture
def source(make: Make) -> PythonRuntime:
    return make(sandbox=SANDBOX)


def test_a_half_consumed_generator_stands_where_it_stood(source: PythonRuntime, fork: Fork) -> None:
    """In each branch, over the branch's own shared list; a branch's branch has it at the branch's position."""
    run(source, "data = [1, 2, 3]\ng = (x * 2 for x in data)", "a = next(g)", "big = bytearray(300_000)")
    one, two = fork(source, 2)
    assert "4" == run(one, "data.append(9)", "next(g)")
    assert "([6, 18], 300000)" == run(fork(one)[0], "list(g), len(big)")
    assert ["[4, 6]", "[4, 6]"] == [run(runtime, "list(g)") for runtime in (two, source)]


def test_a_step_that_failed_has_made_what_it_had_bound_by_then(source: PythonRuntime, fork: Fork) -> None:
    run(source, "data = iter([])\nother = (x for x in range(3))")
    assert not source.execute("z = zip(other, data); next(z)").success
    (branch,) = fork(source)
    assert "[1, 2]" == run(branch, "list(other)") == run(source, "list(other)")
    assert "[]" == run(branch, "list(z)")


def test_locks_connections_and_open_files(source: PythonRuntime, fork: Fork) -> None:
    """Each branch has its own; files are the existing ones, at their positions."""
    run(
        source,
        "import sqlite3, threading, os\nlock = threading.Lock(); conn = sqlite3.connect(':memory:')",
        "conn.execute('create table t (x)'); conn.execute('insert into t values (7)'); os.mkdir('d');",
        "w = open('d/out', 'w'); w.write('a'); w.flush(); w.write('b');",
        "open('d/beside', 'w').write('c'); os.chdir('d')",
    )
    (branch,) = fork(source)
    ask = "w.write('z'); w.close(); lock.acquire(), conn.execute('select x from t').fetchone(), open('out').read()"
    assert "(True, (7,), 'abz')" == run(branch, ask) == run(source, ask)
    assert "['beside', 'out']" == run(branch, "sorted(os.listdir())")


def test_host_calls_are_answered_from_the_record(make: Make, fork: Fork) -> None:
    """No branch repeats the calls that made the value; its later calls are made."""
    calls = list[str]()

    def send(text: str) -> int:
        calls.append(text)
        return len(calls)

    source = make(sandbox=SANDBOX, functions=[Function(send, host=True)])
    run(source, "n = send('a')\ng = (n + x for x in range(9))", "next(g);")
    one, two = fork(source, 2)
    assert ["2", "2", "2"] == [run(runtime, "next(g)") for runtime in (one, two, source)]
    assert ["a"] == calls
    assert "2" == run(one, "send('b')")


@pytest.mark.usefixtures("by_value")
def test_what_cannot_be_made_again_is_named_with_the_reason(make: Make, fork: Fork) -> None:
    """Before anything starts if that is known, otherwise before a branch is returned; `partial` copies the rest."""
    source = make(sandbox=SANDBOX, variables=[Variable("h", "as it was put in")])
    run(source, "import time; t = time.time(); g = (t + x for x in range(3)); kept = [1]")
    with pytest.raises(
        IncompleteForkError, match="cannot be made again: step 1 may give something else each time"
    ):
        source.fork()
    run(source, "del g, t", "data = [open('/proc/uptime').read()]; h = (x for x in data)")
    with pytest.raises(IncompleteForkError, match="data, h: step 3 leaves another data than the first time"):
        source.fork()
    (branch,) = fork(source, partial=True)
    assert "([1], 1, False)" == run(branch, "kept, len(data), 'h' in globals()")
    assert branch.carried is not None
    assert ("data, h: step 3 leaves another data than the first time",) == branch.carried.missing


def test_a_kept_state_has_the_generator_as_it_was_there(make: Make, fork: Fork) -> None:
    """Not in its present state: only the steps that led to the earlier state are run."""
    source = make(sandbox=SandboxPolicy(preload=()))
    run(source, "g = iter([1, 2, 3, 4]); h = (x for x in g)", "next(h);", "next(h);")
    (former,) = fork(source, step=2)
    assert "2" == run(former, "next(h)")
    assert "3" == run(source, "next(h)") == run(fork(source, step=3)[0], "next(h)")


def test_a_branch_of_what_was_restored_has_what_the_restore_had(
    make: Make, fork: Fork, tmp_path: Path
) -> None:
    """The steps that were read from the store lead to it; the branch can be stored, and restored too."""
    source = make(sandbox=SANDBOX, store=tmp_path / "s", name="r")
    run(source, "g = (x for x in 'abcd')", "next(g);")
    source.checkpoint()
    source.close()
    restored = PythonRuntime.restore(tmp_path / "s", "r", sandbox=SANDBOX)
    run(restored, "next(g);")
    (branch,) = fork(restored)
    restored.close()
    assert "'c'" == run(branch, "next(g)")


def test_a_branch_goes_on_behind_what_a_client_has_put_in(source: PythonRuntime, fork: Fork) -> None:
    """A change by the client is a step as well, and part of the branch's state."""
    run(source, "a = 1")
    source.inject(Variable("b", 2))
    (branch,) = fork(source)
    assert 2 == branch.core.read_history().tree.head
    assert 3 == branch.execute("a + b").step


def test_what_was_put_in_at_first_is_put_in_again(make: Make, fork: Fork) -> None:
    """Steps that have changed it change it again, also where a step may have changed anything; aliases stay."""
    rows = [1, 2, 3]
    source = make(sandbox=SANDBOX, variables=[Variable("rows", rows), Variable("same", rows)])
    run(
        source,
        "g = (x for x in rows); next(g)",
        "same.append(4)",
        "import sqlite3; conn = sqlite3.connect(':memory:'); conn.execute('create table t (x)');",
        "rows.append(5)",
    )
    (branch,) = fork(source)
    ask = "rows is same, list(g), len(rows), conn.execute('select count(*) from t').fetchone()"
    assert "(True, [2, 3, 4, 5], 5, (0,))" == run(branch, ask) == run(source, ask)
    (again,) = fork(branch)
    assert "([1, 2, 3, 4, 5], True)" == run(again, "rows, rows is same")


CELLS = (
    "g = (x * 2 for x in data)",
    "next(g)",
    "g = itertools.chain(g, data)",
    "both = [g, data]",
    "def f():\n    for x in data: yield x + 1\ng = f()",
    "k = (note(x) for x in rows)",
    "next(k)",
    "data.append(len(rows))",
    "data = [1, 2, 3]",
    "rows.append(4)",
    "copy = rows",
    "z = zip(g, k); next(z)",
    "w = open('out', 'w'); w.write('a')",
    "w.write('b'); w.flush()",
    "lock = threading.Lock()",
    "lock.acquire(blocking=False)",
    "random.seed(3)",
    "r = random.random(); next(g)",
    "c = sqlite3.connect(':memory:')",
    "c.execute('create table t (x)')",
    "1 / 0",
)
LEFT = """
found = globals()
[(n, [*itertools.islice(found[n], 9)]) for n in 'gkz' if n in found], data, rows, found.get('copy') is rows
"""
OTHERS = """
'lock' in globals() and lock.locked(), 'w' in globals() and (w.close(), open('out').read()), random.random()
"""


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(st.lists(st.sampled_from(CELLS), min_size=5, max_size=15))
def test_a_branch_is_what_its_source_is(cells: list[str]) -> None:
    """After any cells; no external effect is repeated for it."""
    calls = list[int]()
    functions = [Function(calls.append, name="note", host=True)]
    with PythonRuntime(sandbox=SANDBOX, functions=functions, variables=[Variable("rows", [1, 2])]) as source:
        run(source, "import itertools, random, sqlite3, threading; random.seed(1); data = [5, 6]")
        for cell in cells:
            source.execute(cell)
        before = list(calls)
        with source.fork(deterministic=True) as branch:
            assert before == calls
            for what in (OTHERS, LEFT):
                assert run(source, what) == run(branch, what)


async def test_an_agent_branches_with_its_generator(source: PythonRuntime) -> None:
    """Best of n, each from the generator's position."""
    run(source, "g = (x for x in range(9))", "next(g);")
    agent = CaveAgent(ScriptedModel(["```python\nn = next(g)\nreply(str(n))\n```"] * 2), source)
    response = await agent.branch("take one", n=2, score=lambda state: float(state.retrieve("n")))
    agent.runtime.close()
    assert [1.0, 1.0] == [branch.score for branch in response.branches]


SHARED = {
    "column": ("df = pd.DataFrame({'a': [1, 2]}); v = df['a']", "df.loc[0, 'a'] = 9", "v.tolist()", "[1, 2]"),
    "frame": (
        "df = pd.DataFrame({'a': [1, 2]}); v = df[['a']]",
        "v.iloc[0, 0] = 9",
        "df.a.tolist()",
        "[1, 2]",
    ),
    "times": (
        "v = pd.Series(pd.to_datetime(['2024-01-01'])); w = v.copy(deep=False)",
        "v[0] = pd.Timestamp('2020-01-01')",
        "w.dt.year.tolist()",
        "[2024]",
    ),
    "index": ("i = pd.Index([5, 6]); s = pd.Series(i)", "s[0] = 1", "i.tolist()", "[5, 6]"),
    "array": (
        "a = np.zeros((2, 2)); df = pd.DataFrame(a, copy=False)",
        "a[0] = 7",
        "df.iloc[0].tolist()",
        "[7.0, 7.0]",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("made", "written", "seen", "expected"), SHARED.values(), ids=SHARED.keys())
def test_what_is_written_to_a_column_shows_where_it_did(
    make: Make, fork: Fork, by_value: None, made: str, written: str, seen: str, expected: str
) -> None:
    """pandas copies a column that frames share before it writes to it, and no array that a frame was made over."""
    source = make()
    run(source, "import numpy as np, pandas as pd", made)
    (branch,) = fork(source)
    assert expected == run(branch, written, seen) == run(source, written, seen)
