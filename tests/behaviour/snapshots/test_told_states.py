"""States for which no copy is made: rollbacks to them work like any other."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.carry.moves import carry, ran
from tests.support.escape.arena import warden_of
from tests.support.processes import children_of, status_of
from tests.support.snapshots.fixtures import MakeRuntime
from tests.waiting import until

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.execution.trace import ANYTHING, file, name

CRASH = "import os; x = 'lost'; os._exit(3)"
CELLS = (
    "x = {n}",
    "y = x",
    "x, y = {n} * 1000, x",
    "kept.append(x)",
    "kept",
    "print(x, y, kept, x is y)",
    "kept = [x, {n}.5]",
    "row = [{n}, (x, 'a'), {'b': [y]}]",
    "row[2]['b'].append({n}); row",
    "kept.append(row)",
    "y = [row]",
    "row, y = y, row",
    "del row",
    "def f(): return x",
    "y = f()",
    "x",
    "y = '{n} and more'",
    "del y\ny = b'{n}'",
    "y = _ is kept",
    "import random; random.seed({n})",
    "x = random.random()",
    "open('file', 'w').write(str(x))",
    "with open('file', 'a') as f:\n    f.write(str(y))",
    "with open('file') as f:\n    y = f.read()",
    "f.name, f.mode, f.closed",
    "Path('file').write_text(str(x))",
    "g, f = f, {n}",
    "s = {x, {n}, 8, 'a'}",
    "s.add({n} + 8)",
    "s.pop(), list(s)",
    "1 / 0",
)

NUMBERS = (
    "import math, numpy as np",
    "from collections import Counter, deque",
    "from math import floor as f",
    "a = np.linspace(0, {n}, 5)",
    "b = a",
    "a[{n} % 4] = {n}.5",
    "b += 1",
    "a = np.arange(6).reshape(2, 3).T",
    "b = a[1:]",
    "y = a.sum(); z = a.any()",
    "a.flags.writeable = False",
    "np.sqrt(a), a.strides, a.base is None, a is b, a.dtype",
    "b = a * {n}; b.sort()",
    "def f(x, n={n}, *, by: float = 2.5) -> list:\n    'It is {n}.'\n    return [x, n, by, y, f]",
    "f({n})[:4], f.__doc__, f.__annotations__",
    "g = f",
    "def g():\n    return 1 / 0",
    "g()",
    "f is g",
    "def f(x, held=[]):\n    held.append(x)\n    return held",
    "del f",
    "print(Counter(str(y)), math.pi, deque.__module__)",
    "class Held: pass",
    "import pandas as pd",
    "df = pd.DataFrame({'k': list('abab'), 'v': [1.5, 2, 3, {n}], 'n': range(4)})",
    "s = df.groupby('k').mean()",
    "s = df['v'].describe()",
    "t = df[df.v > {n}]",
    "t = s",
    "t = df.sort_values('v'); s = t['n']",
    "df['w'] = df['v'] * {n}",
    "s.iloc[0] = {n}",
    "t = df.head(2); t.loc[:, 'n'] = {n}",
    "print(df, s, t, sep='\\n'); t.index.name, t.columns is df.columns, t.index.is_(df.index)",
    "s.index.name = 'name{n}'",
    "y = df['v'].mean()",
)


def filled(text: str, n: int) -> str:
    return text.replace("{n}", str(n))


cells = st.builds(filled, st.sampled_from(CELLS), st.integers(0, 9))
numbers = st.builds(filled, st.sampled_from(NUMBERS), st.integers(0, 9))
deeds = st.sampled_from(["", "", "crash", "rollback"])


def told(runtime: PythonRuntime) -> list[int]:
    """Steps stored as bindings: the copies take whole kilobytes."""
    return [info.step for info in runtime.snapshots() if info.memory % 1024]


def come_to(result: ExecutionResult) -> object:
    """A cell's trace, without versions that are drawn at random."""
    error = result.error and result.error.type
    if result.trace is None or ANYTHING in result.trace.reads:
        return result.stdout, result.value, error
    touched = {**result.trace.reads, **result.trace.writes}
    versions = {each: version if version[:1] != "?" else "?" for each, version in touched.items()}
    return result.stdout, result.value, error, versions


def test_the_first_cell_is_told_like_any_other(runtime: PythonRuntime) -> None:
    """After the copy of the start no second one is needed."""
    runtime.execute("x = 1")
    runtime.snapshot()
    assert [1] == told(runtime)
    assert "rolled_back" == runtime.execute(CRASH).state
    assert "1" == runtime.execute("x").value


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(cells, deeds), min_size=4, max_size=9))
def test_there_and_back_in_between_changes_nothing(program: list[tuple[str, str]]) -> None:
    """Each cell has the same effects and the same trace as without rollbacks."""
    first = (
        "import random; random.seed(0); x = y = 1; f = len; kept = []; s = {8}",
        "from pathlib import Path",
    )
    _there_and_back(SandboxPolicy(preload=()), first, program)


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(numbers, deeds), min_size=5, max_size=10))
def test_there_and_back_with_numbers_functions_and_imports(program: list[tuple[str, str]]) -> None:
    first = (
        "import numpy as np, pandas as pd; a = np.ones(3); b = a; y = 1",
        "df = pd.DataFrame({'k': list('abab'), 'v': [1.0, 2, 3, 4], 'n': range(4)}); s = t = df.groupby('k').mean()",
        "def f(x):\n    return [x, y]",
        "g = f",
    )
    _there_and_back(SandboxPolicy(), first, program)


def _there_and_back(policy: SandboxPolicy, first: tuple[str, ...], program: list[tuple[str, str]]) -> None:
    with PythonRuntime(sandbox=policy) as straight, PythonRuntime(sandbox=policy) as moved:
        for runtime in (straight, moved):
            for code in first:
                runtime.execute(code)
        for number, (code, deed) in enumerate(program):
            expected = come_to(straight.execute(code))
            assert expected == come_to(moved.execute(code))
            here = moved.snapshot().step
            if deed == "crash":
                result = moved.execute(CRASH)
                assert ("rolled_back", here) == (result.state, result.back_at)
            elif deed == "rollback":
                kept = [info.step for info in moved.snapshots()]
                moved.rollback(kept[number % len(kept)])
                assert here == moved.rollback(here).step


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("code", "look"),
    [
        ("import json", "json.dumps([1])"),
        ("from collections import Counter, deque as d", "Counter('aab'), d([1])"),
        ("x = np.linspace(0, 1, 5)", "x, x.strides, x.flags.writeable"),
        ("a[1] = 7", "a, b is a"),
        ("x = np.arange(6).reshape(2, 3)", "x, x.base.shape, x.flags.owndata"),
        ("m = a.mean(); any = (a > 0).any()", "m, type(m), any is np.True_"),
        ("s = df.groupby('k').mean()", "s, s.index.name, s.dtypes"),
        ("t = df[df.v > 1]; g = t.groupby('k').sum()", "t, g, t.columns.is_(df.columns), t._mgr.blocks"),
        ("def f(x, n=2):\n    'A text.'\n    return x * n", "f(3), f.__doc__, f.__module__"),
        ("def old(x):\n    return x - 1", "old(3)"),
    ],
)
def test_what_is_told_without_a_copy(runtime: PythonRuntime, code: str, look: str) -> None:
    """After a crash, and after a rollback from elsewhere."""
    runtime.execute("import numpy as np; a = b = np.ones(3)\ndef old(x):\n    return x\nclass C: pass")
    runtime.execute(
        "import pandas as pd; df = pd.DataFrame({'k': list('abab'), 'v': [1, 2, 3, 4]}); df.groupby('k').sum()"
    )
    runtime.snapshot()  # bindings refer to a copy, and this one exists
    step = runtime.execute(code).step
    expected = runtime.execute(look).value
    runtime.snapshot()
    assert step in told(runtime), runtime.snapshots()
    assert "rolled_back" == runtime.execute(f"a = old = x = f = 0; {CRASH}").state
    assert expected == runtime.execute(look).value
    assert 2 == runtime.rollback(2).step
    assert step == runtime.rollback(step).step
    assert expected == runtime.execute(look).value


def test_a_function_that_is_told_shows_its_lines(runtime: PythonRuntime) -> None:
    """To tracebacks and to `inspect`, in a process that never saw its cell."""
    runtime.execute("class C: pass")
    runtime.execute("def f(x):\n    return 1 / x  # here")
    assert "rolled_back" == runtime.execute(CRASH).state
    error = runtime.execute("f(0)").error
    assert error is not None
    assert "return 1 / x  # here" in error.traceback
    assert "return 1 / x  # here" in str(runtime.execute("import inspect; inspect.getsource(f)").value)


def test_a_warning_is_shown_in_a_told_state_too(runtime: PythonRuntime) -> None:
    """numpy's own modules record that they have shown it, and no name leads to them."""
    runtime.execute("import numpy as np; data = [1]; none = np.array([])")
    runtime.snapshot()
    step = runtime.execute("x = np.mean(none)").step
    runtime.snapshot()
    assert step in told(runtime)
    assert "rolled_back" == runtime.execute(CRASH).state
    assert "Mean of empty slice" in runtime.execute("x = np.mean(none)").stderr


def test_what_pickling_has_changed_is_kept_behind_the_next_cell(runtime: PythonRuntime) -> None:
    """No cell has written the change. Plain values are unaffected."""
    runtime.execute(
        "class O:\n    def __reduce__(self):\n        self.n.append(1)\n        return list, ()\n"
        "    def __init__(self): self.n = []\no = O()"
    )
    runtime.snapshot()
    runtime.execute("x = [1]")
    runtime.share("x")
    runtime.execute("y = 1")
    runtime.snapshot()
    runtime.share("o")
    runtime.execute("y = 2")
    runtime.snapshot()
    assert [2, 3] == told(runtime)
    assert "rolled_back" == runtime.execute(CRASH).state
    assert "([1], 2)" == runtime.execute("o.n, y").value


def test_small_bindings_make_no_copy(runtime: PythonRuntime) -> None:
    """All states that a rollback can reach are the copy before them, or bindings relative to it."""
    runtime.execute("data = [1]")
    for number in range(5):
        assert runtime.execute(f"x = {number} * 1000").unkept == ""
    runtime.execute("print(len(data))")
    runtime.execute("data")
    runtime.snapshot()
    assert [2, 3, 4, 5, 6, 7, 8] == told(runtime)
    for step in (4, 8, 2):
        assert step == runtime.rollback(step).step
        assert str(min((step - 2) * 1000, 4000)) == runtime.execute("x").value


def test_a_crash_falls_back_to_the_last_of_them(runtime: PythonRuntime) -> None:
    """Repeatedly, with more of them in between."""
    runtime.execute("data = [1]")
    for number in range(1, 4):
        step = runtime.execute(f"x = {number}").step
        result = runtime.execute(CRASH)
        assert ("rolled_back", step) == (result.state, result.back_at)
        assert f"({number}, [1])" == runtime.execute("(x, data)").value


def test_a_label_and_a_failing_atomic_cell(runtime: PythonRuntime) -> None:
    runtime.execute("data = [1]")
    step = runtime.execute("x = 1").step
    assert step == runtime.snapshot("here").step
    runtime.execute("y = 2")
    result = runtime.execute("data.append(2); x = 3; undefined", on_error="rollback")
    assert ("rolled_back", step + 1) == (result.state, result.back_at)
    assert "([1], 1, 2)" == runtime.execute("data, x, y").value
    runtime.execute("data.append(x)")
    assert step == runtime.rollback("here").step
    assert "([1], 1, False)" == runtime.execute("data, x, 'y' in globals()").value


def test_containers_that_a_copy_has_are_told_with_what_is_in_them_now(runtime: PythonRuntime) -> None:
    """Sets with their layout: their items and their order are the same after a crash and a rollback."""
    runtime.execute("class F: pass\nrows, table, met, other = [], {'a': [1]}, {8, 0}, 0")
    runtime.snapshot()
    for code in (
        "rows.append('one')",
        "table['a'].append(2.5)",
        "met.add(16)",
        "met.pop(); other = met",
        "met",
    ):
        runtime.execute(code)
    step = runtime.snapshot().step
    assert [2, 3, 4, 5, 6] == told(runtime)
    look = "rows, table, list(met), other is met"
    expected = runtime.execute(look).value
    assert "(['one'], {'a': [1, 2.5]}, [" in str(expected)
    assert 3 == runtime.rollback(3).step
    assert "(['one'], {'a': [1, 2.5]}, True)" == runtime.execute("rows, table, met == {8, 0}").value
    assert step == runtime.rollback(step).step
    assert expected == runtime.execute(look).value
    assert "rolled_back" == runtime.execute(f"rows.clear(); met.clear(); {CRASH}").state
    assert expected == runtime.execute(look).value


def test_files_are_told_with_the_directory(runtime: PythonRuntime) -> None:
    """Each state has its own version, and none needs a copy of the process."""
    runtime.execute("data = {1}")
    runtime.execute("with open('a', 'w') as f:\n    f.write('one')")
    runtime.execute("x = open('b', 'w').write('more')")
    runtime.execute("with open('a', 'a') as f:\n    f.write(', two')")
    runtime.execute("with open('a') as f:\n    text = f.read()")
    runtime.snapshot()
    assert [1, 2, 3, 4, 5] == told(runtime)
    look = "import os; (sorted(os.listdir()), open('a').read(), f.mode, f.closed, data)"
    assert "rolled_back" == runtime.execute(f"open('a', 'w').write('lost'); {CRASH}").state
    assert "(['a', 'b'], 'one, two', 'r', True, {1})" == runtime.execute(look).value
    for step, files, text, mode in ((4, ["a", "b"], "one, two", "a"), (2, ["a"], "one", "w")):
        assert step == runtime.rollback(step).step
        assert str((files, text, mode, True, {1})) == runtime.execute(look).value


def test_a_file_that_nobody_has_a_name_for(runtime: PythonRuntime) -> None:
    """It is still open, and may have been written to: only a copy has that."""
    runtime.execute("class F: pass\ndef leave():\n    held = [open('left', 'w')]\n    held.append(held)")
    runtime.snapshot()
    runtime.execute("x = 1")
    runtime.execute("leave()")
    runtime.execute("x = 2")
    runtime.snapshot()
    assert [2, 4] == told(runtime)


def test_files_are_carried_from_one(runtime: PythonRuntime) -> None:
    """With the values of that state, not those of the copy before it."""
    ran(runtime, "data = {1}\nwith open('a', 'w') as f:\n    f.write('one')")
    ran(runtime, "with open('a', 'w') as f:\n    f.write('two')")
    ran(runtime, "with open('a', 'w') as f:\n    f.write('three')")
    ran(runtime, "data.add(2)")
    assert 2 in told(runtime)
    assert "" == carry(runtime, 2, file("a"))
    assert "('two', {1, 2})" == runtime.execute("open('a').read(), data").value


def test_values_are_carried_from_one(runtime: PythonRuntime) -> None:
    """The copy is asked, and returns values that it never had."""
    ran(runtime, "data = [1]")
    ran(runtime, "x = 5000")
    ran(runtime, "x = 6000")
    ran(runtime, "data.append(x)")
    assert "" == carry(runtime, 2, name("x"), name("data"))
    assert "(5000, [1])" == runtime.execute("x, data").value


def test_a_branch_of_one(runtime: PythonRuntime) -> None:
    runtime.execute("data = [1]")
    step = runtime.execute("x = 5000").step
    runtime.execute("x = 6000")
    with runtime.fork(step) as branch:
        assert "(5000, [1])" == branch.execute("x, data").value
    assert "6000" == runtime.execute("x").value


def test_definitions_behind_one_have_their_sources(runtime: PythonRuntime) -> None:
    runtime.execute("def f():\n    return 1 / x")
    runtime.execute("x = 0")
    runtime.execute(CRASH)
    error = runtime.execute("f()").error
    assert error is not None
    assert "return 1 / x" in error.traceback


def test_the_copy_that_they_are_told_of_ends(runtime: PythonRuntime) -> None:
    """The present state is copied again before the next cell, which falls back to it; other bindings are lost."""
    runtime.execute("class F: pass\ndata = [1]")
    runtime.snapshot()
    runtime.execute("x = 1")
    step = runtime.execute("x = 2").step
    _kill(runtime, _copies(runtime))
    result = runtime.execute(CRASH)
    assert ("rolled_back", step + 1, "") == (result.state, result.back_at, result.unkept)
    assert "([1], 2)" == runtime.execute("data, x").value
    _kill(runtime, _copies(runtime))
    assert "here" in {info.label for info in (runtime.snapshot("here"), *runtime.snapshots())}


def test_a_copy_that_ends_while_a_cell_runs(runtime: PythonRuntime) -> None:
    """The cell's result says that the state before it is not stored; the one after it is."""
    runtime.execute("class F: pass\ndata = [1]; x = 1")
    runtime.snapshot()  # which is a copy
    copies = _copies(runtime)
    with ThreadPoolExecutor() as thread:
        running = thread.submit(runtime.execute, "while True: pass")
        until(lambda: _is_busy(runtime))
        _kill(runtime, copies)
        runtime.interrupt()
        assert "the copy that had it has ended" in running.result().unkept
    result = runtime.execute(CRASH)
    assert ("rolled_back", "") == (result.state, result.unkept)
    assert "[1]" == runtime.execute("data").value


def _is_busy(runtime: PythonRuntime) -> bool:
    status = runtime.status()
    return status is not None and status.step is not None


def _kill(runtime: PythonRuntime, copies: list[int]) -> None:
    """Kills a copy and waits until the warden has noticed: the worker's start needs none of them."""
    assert copies
    for pid in copies:
        with suppress(ProcessLookupError):  # a dropped one may have been about to end
            os.kill(pid, signal.SIGKILL)
    until(lambda: [0] == [info.step for info in runtime.snapshots()])


def _copies(runtime: PythonRuntime) -> list[int]:
    """Processes of this jail other than the worker, by the machine's numbers."""
    inside = runtime.execute("import os; os.getpid()").value
    runtime.snapshot()  # then none is about to be made
    children = {pid: status for pid in children_of(warden_of(runtime)) if (status := status_of(pid))}
    # The last of the numbers is the one in the innermost namespace.
    return [pid for pid, status in children.items() if inside != status["NSpid"].split()[-1]]


def test_without_traces_no_more_copies_are_made(make_runtime: MakeRuntime) -> None:
    """Where states are stored, cells are traced all the same: that costs less than a copy for each."""
    runtime = make_runtime(tracking=False)
    results = [runtime.execute(f"x = {number}") for number in range(3)]
    runtime.snapshot()
    assert {result.step for result in results} <= {0, *told(runtime)}, runtime.snapshots()
    assert [None] * 3 == [result.trace for result in results]
    assert "rolled_back" == runtime.execute(CRASH).state
    assert "2" == runtime.execute("x").value
