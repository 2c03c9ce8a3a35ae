"""on_error="rollback": a cell that fails leaves no trace in the namespace, and none in the files."""

from __future__ import annotations

import asyncio

import pytest

from cenote.runtime import AsyncPythonRuntime, PythonRuntime, Variable
from cenote_security.errors import UsageError
from cenote_worker.execution.results import ExecutionResult

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform", "http")]


def ok(result: ExecutionResult) -> str | None:
    assert result.success, result.error
    return result.value


def test_a_failing_cell_leaves_nothing(runtime: PythonRuntime) -> None:
    """Its bindings, in-place changes and advanced iterators are undone; the error is the cell's own."""
    ok(runtime.execute("x = [1]; g = (i for i in range(9)); next(g)"))
    result = runtime.execute("x.append(2); y = 1; next(g); print('said'); 1 / 0", on_error="rollback")
    assert ("rolled_back", 1, "said\n") == (result.state, result.back_at, result.stdout)
    assert ("ZeroDivisionError", "exception") == (result.error and (result.error.type, result.error.reason))
    assert "([1], False, 1)" == ok(runtime.execute("x, 'y' in globals(), next(g)"))


@pytest.mark.at("embedded", "platform")
def test_what_was_injected_since_the_last_cell_stays(runtime: PythonRuntime) -> None:
    """A rollback restores the state before the cell, not the state after the last one."""
    ok(runtime.execute("x = 1"))
    runtime.inject(Variable("late", 7))
    assert "rolled_back" == runtime.execute("late = 9; raise SystemExit(3)", on_error="rollback").state
    assert "7" == ok(runtime.execute("late"))


def test_again_and_again(runtime: PythonRuntime) -> None:
    """Failures leave no snapshots, and the next failure rolls back to the same state."""
    ok(runtime.execute("x = 1"))
    for _ in range(4):
        assert 1 == runtime.execute("x = 2; undefined", on_error="rollback").back_at
    assert {info.step for info in runtime.snapshots()} <= {0, 1}
    assert "1" == ok(runtime.execute("x"))


def test_a_cell_that_runs_out_of_time(runtime: PythonRuntime) -> None:
    """An interrupt is a failure like any other, and the result reports no stored state."""
    ok(runtime.execute("x = 1"))
    result = runtime.execute("x = 2\nimport time; time.sleep(600)", timeout=0.1, on_error="rollback")
    assert ("rolled_back", "time") == (result.state, result.error and result.error.reason)
    assert "kept" not in str(result.error)
    assert "1" == ok(runtime.execute("x"))


def test_a_state_that_could_not_be_kept(runtime: PythonRuntime) -> None:
    """The failure's effects then remain, and the result says why."""
    ok(
        runtime.execute(
            "import threading\nstop = threading.Event()\nt = threading.Thread(target=stop.wait); t.start()"
        )
    )
    result = runtime.execute("x = 2; 1 / 0", on_error="rollback")
    assert ("kept", True) == (result.state, "threads" in result.unkept)
    assert "2" == ok(runtime.execute("stop.set(); t.join(); x"))


def test_success_and_what_is_no_choice(runtime: PythonRuntime) -> None:
    """A cell that succeeds behaves as usual; an unknown option is refused before anything runs."""
    assert ("kept", "1") == ((result := runtime.execute("x = 1; x", on_error="rollback")).state, result.value)
    with pytest.raises(UsageError, match="on_error"):
        runtime.execute("x = 2", on_error="undo")  # type: ignore[arg-type]
    assert "1" == ok(runtime.execute("x"))


@pytest.mark.at("embedded", "platform", "relayed")
async def test_cells_that_wait_come_after_the_return() -> None:
    """Nothing runs between the failure and the rollback, with the async API too."""
    async with AsyncPythonRuntime() as runtime:
        await runtime.execute("x = 1")
        both = runtime.execute("x = 2; 1 / 0", on_error="rollback"), runtime.execute("x")
        failed, after = await asyncio.gather(*both)
    assert ("rolled_back", "1") == (failed.state, after.value)
