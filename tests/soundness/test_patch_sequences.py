"""Several patches of one history, reverted in any order, and steps that run again with their first outcome."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.harness import ApplyOptions, ApplyResult, Patch, PatchConflictError, TextEdit
from cenote.runtime import Function, PythonRuntime
from cenote.runtime.replay.replay_target import RuntimeReplayTarget
from cenote_security.errors import NotKeptError
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.runtime import HostedRuntime

AS_A_NOTEBOOK = ApplyOptions(stop_on_failure=False)


@pytest.fixture
def sent() -> list[str]:
    """Calls with an effect outside."""
    return []


@pytest.fixture
def runtime(sent: list[str]) -> Iterator[PythonRuntime]:
    def send(to: str) -> int:
        sent.append(to)
        return len(sent)

    with PythonRuntime(sandbox=SandboxPolicy(preload=()), functions=[Function(send, host=True)]) as runtime:
        yield runtime


def ran(runtime: PythonRuntime, *cells: str) -> None:
    for cell in cells:
        runtime.execute(cell)


def patched(runtime: PythonRuntime, place: int, code: str) -> tuple[str, ApplyResult]:
    """Replaces the code of the step at this index of the line. Returns the patch's id."""
    state = runtime.state
    plan = state.plan(Patch.replace_step(state.steps[place].number, code))
    return plan.patch.id, state.apply(plan, AS_A_NOTEBOOK)


def codes(runtime: PythonRuntime) -> list[str]:
    return [step.code for step in runtime.state.steps]


def test_the_first_of_several_patches_is_taken_back(runtime: PythonRuntime) -> None:
    """Later patches and steps stay; a second revert finds nothing."""
    ran(runtime, "a = 1", "b = a + 1", "c = 5")
    first, _ = patched(runtime, 0, "a = 10")
    ran(runtime, "later = b")
    patched(runtime, 2, "c = 6")
    patched(runtime, 2, "c = 7")
    assert "applied" == runtime.state.revert(first).status
    assert ["a = 1", "b = a + 1", "c = 7", "later = b"] == codes(runtime)
    assert "(1, 2, 7, 2)" == runtime.execute("a, b, c, later").value
    with pytest.raises(PatchConflictError, match="has nothing of it"):
        runtime.state.revert(first)


@pytest.mark.slow
def test_a_step_keeps_its_first_number(runtime: PythonRuntime) -> None:
    """Patches give steps new numbers: step 2 can still be called so after any number of patches."""
    state = runtime.state
    ran(runtime, "a = 1", "b = a + 1", "c = b + 1")
    patched(runtime, 0, "a = 2")
    patched(runtime, 0, "a = 3")
    for patch in (
        Patch.replace_step(2, "b = a + 10"),
        Patch.edit(2, "@@ -1 +1 @@\n-b = a + 1\n+b = a + 10\n"),
        Patch.edit_text(2, [TextEdit(search="b = a + 1", replacement="b = a + 10")]),
    ):
        state.apply(state.plan(patch))
        assert 14 == runtime.retrieve("c")
        state.revert(patch.id)
    for patch in (Patch.insert_step(2, "b *= 2"), Patch.remove_step(3)):
        state.apply(state.plan(patch))
    assert ["a = 3", "b = a + 1", "b *= 2"] == codes(runtime)
    assert 8 == runtime.retrieve("b")
    with pytest.raises(PatchConflictError, match="no step 3"):
        state.plan(Patch.remove_step(3))


def test_a_patch_of_a_line_that_was_left_is_not_taken_back(runtime: PythonRuntime) -> None:
    """Changes on the other line stay."""
    ran(runtime, "a = 1", "b = a")
    first, _ = patched(runtime, 0, "a = 10")
    runtime.rollback(2)
    ran(runtime, "c = b")
    with pytest.raises(PatchConflictError, match="has nothing of it"):
        runtime.state.revert(first)
    assert ["a = 1", "b = a", "c = b"] == codes(runtime)


@pytest.mark.parametrize("removed", [False, True])
def test_what_was_done_outside_is_known_when_it_comes_back(
    runtime: PythonRuntime, sent: list[str], *, removed: bool
) -> None:
    """A call is made once, even if the latest version of its step did not make it, or the step was removed."""
    ran(runtime, "n = 0", "n = send('ana')", "m = n")
    state = runtime.state
    plan = state.plan(Patch.remove_step(2) if removed else Patch.replace_step(2, "n = 7"))
    assert "applied" == state.apply(plan).status
    assert "applied" == state.revert(plan.patch.id).status
    assert ("(1, 1)", ["ana"]) == (runtime.execute("n, m").value, sent)


@pytest.mark.slow
def test_a_step_has_its_limit_when_it_runs_again() -> None:
    """Whether or not it has reached it before."""
    for limit in (0.5, 5.0, 30.0):  # where even a trivial step takes as long, with a higher limit
        if (found := _found_of_limits(limit)) == (["ok", "failed"], ["ok", "ok"], "time", "[4]"):
            break
    else:
        raise AssertionError(found)


def _found_of_limits(limit: float) -> tuple[object, ...]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        ran(runtime, "n = 1")
        runtime.execute("k = [n]\nwhile n == 2: pass", timeout=limit)
        results = [patched(runtime, 0, f"n = {n}")[1] for n in (2, 3)]
        runtime.execute("while True: pass", timeout=0.2)
        _, last = patched(runtime, 0, "n = 4")
        error = last.records[-1].error
        statuses = [[record.status for record in result.records] for result in results]
        return (*statuses, error and error.reason, runtime.execute("k").value)


def test_a_step_that_was_to_be_undone_is_undone_when_it_fails_again(runtime: PythonRuntime) -> None:
    """Steps before it that were not run again stay; and no later step has to run for that."""
    ran(runtime, "n = 1", "stands = [5]")
    runtime.execute("stands = n\nassert n == 1", on_error="rollback")
    ran(runtime, "later = [4]")
    _, result = patched(runtime, 0, "n = 2")
    assert ((1, 3), "([5], [4])") == (result.steps_rerun, runtime.execute("stands, later").value)
    assert ["n = 2", "stands = [5]", "later = [4]"] == codes(runtime)[:3]


def test_a_state_in_the_middle_of_a_patch_is_none_of_a_file(runtime: PythonRuntime) -> None:
    """A client's file may be written again while the state is still wrong; no rollback reaches that state until it is
    right.
    """
    runtime.execute("a = 1")
    runtime.files.write("f", b"1")
    hosted = runtime.core.backend
    assert isinstance(hosted, HostedRuntime)
    ground = RuntimeReplayTarget(hosted.rerunning(), hosted.resume, None, atomic=True)
    record = hosted.history.tree.get(2)
    runtime.rollback(ground.execute(record, "", tentative=False).number)
    wrong = ground.execute(record, "", tentative=True)
    with pytest.raises(NotKeptError):
        runtime.rollback(wrong.number)
    assert ground.keep()
    runtime.rollback(wrong.number)


def test_an_unknown_name_is_near_to_names_of_that_time(runtime: PythonRuntime) -> None:
    """The hint does not name names that later steps have bound."""
    ran(runtime, "n = 1", "stands = [5]", "n\nitems", "item = 2")
    _, result = patched(runtime, 0, "n = 3")
    error = result.records[2].error
    assert "name 'items' is not defined; nearest: iter" == (error and error.message)
