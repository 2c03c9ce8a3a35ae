"""Patches where no state can be stored: correct values are copied from the waiting jail, the rest is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from cenote.harness import ApplyOptions, ApplyResult, Patch
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

CELLS = ("a = 1", "rows = [a, 2]", "other = {'k': [5]}; same = other['k']", "c = a + 1", "total = sum(same)")


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=(), snapshots="none")) as runtime:
        yield runtime


def patched(runtime: PythonRuntime, cells: Sequence[str], step: int, code: str) -> ApplyResult:
    for cell in cells:
        assert runtime.execute(cell).success
    state = runtime.state
    return state.apply(state.plan(Patch.replace_step(step, code)), ApplyOptions())


def test_only_what_the_patch_affects_is_run(runtime: PythonRuntime) -> None:
    """Objects that two names share stay shared."""
    result = patched(runtime, CELLS, 4, "c = a + 10")
    assert ("applied", (4,)) == (result.status, result.steps_rerun)
    assert "(1, [1, 2], 11, 5, True)" == runtime.execute("a, rows, c, total, same is other['k']").value


def test_what_was_changed_since_is_made_again(runtime: PythonRuntime) -> None:
    """The waiting jail has its final value, not the one that the patched step finds."""
    cells = ("rows = [1]", "n = len(rows)", "rows.append(2)", "z = 'left alone'")
    result = patched(runtime, cells, 2, "n = len(rows) + 100")
    assert ("applied", (1, 2)) == (result.status, result.steps_rerun[:2])
    assert 4 not in result.steps_rerun
    assert "(101, [1, 2], 'left alone')" == runtime.execute("n, rows, z").value


def test_what_cannot_be_pickled_is_made_again(runtime: PythonRuntime) -> None:
    """Values that share objects with it are not copied either."""
    cells = (
        "rows = [1, 2, 3]",
        "rest = iter(rows); first = next(rest)",
        "far = [9]",
        "x = 1",
        "y = next(rest)",
    )
    result = patched(runtime, cells, 4, "x = 2")
    assert "applied" == result.status
    assert "(2, 2, [9], [3])" == runtime.execute("x, y, far, list(rest)").value


def test_the_state_of_random_numbers_is_that_which_there_was(runtime: PythonRuntime) -> None:
    """A fresh jail has another state, so that all steps that use the library would be run again."""
    cells = (
        "import random",
        "x = random.Random(3).random()",
        "y = x > 2",
        "z = random.Random(4).random() + x",
    )
    result = patched(runtime, cells, 3, "y = x < 2")
    assert ("applied", (3,)) == (result.status, result.steps_rerun)
    assert "(True, True)" == runtime.execute("y, x == random.Random(3).random()").value


def test_what_fails_leaves_the_waiting_jail_as_it_was(runtime: PythonRuntime) -> None:
    """Although it has lent some of its values."""
    for cell in CELLS:
        runtime.execute(cell)
    runtime.execute("before = id(other)")
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(4, "c = other['none']")), ApplyOptions())
    assert ("failed", 6) == (result.status, runtime.state.head)
    assert "(True, 2, 5)" == runtime.execute("before == id(other), c, total").value


def test_a_class_that_cannot_be_pickled_here_says_so_and_is_made_again(runtime: PythonRuntime) -> None:
    """Whatever its instances raise when they are inspected."""
    cells = ("class Odd:\n    def __reduce__(self): raise SystemError('no')", "odd = Odd()", "x = 1", "y = 1")
    result = patched(runtime, cells, 3, "x = 2")
    assert ("applied", False) == (result.status, 4 in result.steps_rerun)
    assert "('Odd', 2, 1)" == runtime.execute("type(odd).__name__, x, y").value


def test_lines_of_functions_come_over_with_them(runtime: PythonRuntime) -> None:
    """A traceback shows them, and `inspect` returns a function's source."""
    cells = (
        "def f(): return 1 / 0",
        "x = 1",
        "import inspect, traceback\ntry: f()\nexcept ZeroDivisionError: t = traceback.format_exc(), x",
    )
    result = patched(runtime, cells, 2, "x = 2")
    assert ("applied", False) == (result.status, 1 in result.steps_rerun)
    assert (
        "(2, True, 'def f(): return 1 / 0\\n')"
        == runtime.execute("t[1], 'def f(): return 1 / 0' in t[0], inspect.getsource(f)").value
    )


@pytest.mark.slow
def test_frames_of_polars_come_over(runtime: PythonRuntime) -> None:
    """Because of its threads the state cannot be stored."""
    cells = (
        "import polars as pl",
        "d = pl.DataFrame({'a': [1, 2, 3], 'b': ['x', None, 'z']})",
        "big = d.lazy().filter(pl.col('a') > 1).collect(); keen = pl.col('a') > 2",
        "n = big.height",
        "m = d.filter(keen).height",
    )
    result = patched(runtime, cells, 4, "n = big.height * 10")
    assert ("applied", (4,)) == (result.status, result.steps_rerun)
    assert "(20, 1, ['z'])" == runtime.execute("n, m, d.filter(keen)['b'].to_list()").value
