"""Patches of steps older than all stored states: the history is run from its start, beside the present state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.harness import ApplyOptions, Patch
from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.errors import NotKeptError
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.exit_reason import JailExit

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]

CELLS = (
    "a = raw.pop()",
    "b = [a, 1]",
    "import os; open('f', 'w').write(str(a))",
    "c = twice(a)",
    "b.append(c)",
)

LOOK = "raw, a, b, c, open('f').read()"


def made() -> PythonRuntime:
    twice = Function(lambda n: 2 * n, name="twice", host=True, effect="pure")
    policy = SandboxPolicy(preload=())
    return PythonRuntime(sandbox=policy, variables=[Variable("raw", [1, 2])], functions=[twice])


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with made() as runtime:
        for cell in CELLS:
            assert runtime.execute(cell).success
        yield runtime


def forget(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """Drops all snapshots but that of the newest state, as when memory is short."""
    runtime.snapshot()
    assert hosted.supervisor is not None
    hosted.supervisor.strike(JailExit(reason="memory"))
    assert [runtime.state.head] == [kept.step for kept in runtime.snapshots()]


def test_without_the_start_the_history_is_begun_again(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """With the values put in before the first step, and recorded answers of pure host calls."""
    forget(runtime, hosted)
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(1, "a = raw.pop() + 5")))
    assert ("applied", 5) == (result.status, len(result.records))
    assert "([1], 7, [7, 1, 14], 14, '7')" == runtime.execute(LOOK).value
    assert 0 in {kept.step for kept in runtime.snapshots()}


def test_what_fails_there_leaves_everything_as_it_was(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """Objects are the same too: the present jail only waited."""
    runtime.execute("before = id(b)")
    forget(runtime, hosted)
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(1, "a = None")), ApplyOptions(aside=True))
    assert ("failed", 6, 0) == (result.status, result.head, result.aside)
    assert 6 == runtime.state.head
    assert "([1], 2, [2, 1, 4], 4, '2')" == runtime.execute(LOOK).value
    assert "True" == runtime.execute("before == id(b)").value


def test_what_was_put_in_since_is_not_the_start(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """It is put in again after the same step."""
    runtime.update_variable("raw", [9])
    runtime.execute("d = raw[0]")
    forget(runtime, hosted)
    state = runtime.state
    assert "applied" == state.apply(state.plan(Patch.replace_step(1, "a = raw.pop() + 5"))).status
    assert "([9], 7, [7, 1, 14], 9)" == runtime.execute("raw, a, b, d").value


def test_going_back_to_a_start_that_is_gone_does_nothing(
    runtime: PythonRuntime, hosted: HostedRuntime
) -> None:
    """That would discard the present state."""
    forget(runtime, hosted)
    with pytest.raises(NotKeptError):
        runtime.state.rollback(0)
    assert "2" == runtime.execute("a").value


@pytest.fixture
def forgetful() -> Iterator[PythonRuntime]:
    """A runtime that stores no states, like one in which threads of a library run."""
    with PythonRuntime(sandbox=SandboxPolicy(snapshots="none", preload=())) as runtime:
        for cell in ("a = [1]", "b = a * 2", "mine = object()"):
            assert runtime.execute(cell).success
        yield runtime


def test_where_no_state_can_be_kept_the_patch_is_applied_beside_it(forgetful: PythonRuntime) -> None:
    """No state needs to be stored: the present jail waits, lends unaffected values, and ends afterwards."""
    state = forgetful.state
    result = state.apply(state.plan(Patch.replace_step(1, "a = [5]")))
    assert ("applied", (1, 2)) == (result.status, result.steps_rerun)
    assert "[5, 5]" == forgetful.execute("b").value


def test_what_fails_beside_it_leaves_it_as_it_was(forgetful: PythonRuntime) -> None:
    """The same objects, the same history, and later cells follow it."""
    forgetful.execute("before = id(mine)")
    state = forgetful.state
    result = state.apply(state.plan(Patch.replace_step(1, "a = None")))
    assert ("failed", 4, 4) == (result.status, result.head, forgetful.state.head)
    assert "(True, [1, 1])" == forgetful.execute("before == id(mine), b").value
    assert [1, 2, 3, 4] == [step.number for step in forgetful.state.steps[:4]]
