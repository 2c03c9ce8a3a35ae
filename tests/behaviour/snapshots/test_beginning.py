"""A process made on demand reproduces a runtime's start; programs see no difference."""

from __future__ import annotations

from tests.support.snapshots.fixtures import MakeRuntime

from cenote.runtime import PythonRuntime, Variable
from cenote_worker.execution.results import Rollback

FIRST = """
import os, random, sys, numpy
frame, depth = sys._getframe(), 0
while frame:
    frame, depth = frame.f_back, depth + 1
told = depth, random.random(), numpy.random.rand(), sorted(os.listdir()), os.getcwd(), sys.argv
*told, len(sys.modules), list(globals())
"""


def test_it_is_what_it_was(runtime: PythonRuntime) -> None:
    """It has the same random numbers, files, modules and recursion limit, before and after a state stored as
    bindings.
    """
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
    """No copy is made for them: the process that continues prepares itself and binds them."""
    for step in range(1, 4):
        assert runtime.execute(f"x = {step}; y{step} = 'text'").success
    assert "2" == _after(runtime, 2, "x")
    assert not runtime.execute("import os; os.abort()").success
    assert "(2, ['x', 'y1', 'y2'])" == runtime.execute("x, sorted(n for n in dir() if n[0] in 'xy')").value


def test_it_costs_nothing(runtime: PythonRuntime) -> None:
    """It needs neither memory nor a process: the next process after the warden and the worker is the cell's own."""
    forking = "import os; child = os.fork()\nif not child: os._exit(0)\nos.waitpid(child, 0)[0]"
    assert "3" == runtime.execute(forking).value
    beginning = runtime.snapshots()[0]
    assert (0, 0) == (beginning.step, beginning.memory)


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
