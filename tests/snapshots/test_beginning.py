"""What a runtime begins with is kept by a process that gets ready when it is wanted: nobody can tell."""

from __future__ import annotations

from tests.snapshots.conftest import MakeRuntime
from tests.waiting import until

from cenote.runtime import PythonRuntime, Variable
from cenote_worker.results import Rollback

LEAST_OF_A_READY_COPY = 3_000_000
"""Bytes of its own memory, behind a first cell: what both have written to."""

FIRST = """
import os, random, sys, numpy
told = random.random(), numpy.random.rand(), sorted(os.listdir()), os.getcwd(), sys.argv
*told, len(sys.modules), list(globals())
"""


def test_it_is_what_it_was(runtime: PythonRuntime) -> None:
    """With the same random numbers, files, names and modules; before and behind a state that was told by bindings."""
    before = runtime.execute(FIRST).value
    assert before
    assert runtime.execute("open('file', 'w').write('text'); os.chdir('/tmp'); import colorsys").success
    assert Rollback(step=0) == runtime.rollback(0)
    assert before == runtime.execute(FIRST).value
    assert "('/tmp', 'text')" == _after(runtime, 2, "os.getcwd(), open(os.environ['HOME'] + '/file').read()")


def test_a_first_cell_that_kills_its_process_changes_nothing(runtime: PythonRuntime) -> None:
    assert not runtime.execute("import os; open('file', 'w').write('text'); os.abort()").success
    assert "[]" == runtime.execute("import os; os.listdir()").value


def test_bindings_behind_it(runtime: PythonRuntime) -> None:
    """No copy is made for them: whoever goes on gets ready, and binds them."""
    for step in range(1, 4):
        assert runtime.execute(f"x = {step}; y{step} = 'text'").success
    assert "2" == _after(runtime, 2, "x")
    assert not runtime.execute("import os; os.abort()").success
    assert "(2, ['x', 'y1', 'y2'])" == runtime.execute("x, sorted(n for n in dir() if n[0] in 'xy')").value


def test_it_costs_little(runtime: PythonRuntime) -> None:
    until(lambda: 1 == runtime.status().processes)  # two, until the worker has said what the other one is
    assert runtime.execute("def f(): pass").success
    assert runtime.snapshots()[0].step == 0
    assert runtime.snapshots()[0].memory < LEAST_OF_A_READY_COPY


def test_a_state_that_something_was_brought_into_is_another(make_runtime: MakeRuntime) -> None:
    """It is copied before the first cell."""
    runtime = make_runtime()
    runtime.inject(Variable("given", 7))
    assert not runtime.execute("import os; del given; os.abort()").success
    assert "7" == runtime.execute("given").value


def _after(runtime: PythonRuntime, step: int, code: str) -> str | None:
    assert Rollback(step=step) == runtime.rollback(step)
    result = runtime.execute(code)
    assert result.success, result.error
    return result.value
