"""Patches of runtimes with `audit_patches`: a share of patched histories is run in full beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.places import Place

from cenote.harness import Artifact, Audit, Patch, Unlike, UnsoundError
from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, Variable
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution import trace
from cenote_worker.history.bounds import MAX_PUT_IN
from cenote_worker.runtime import injection_log
from cenote_worker.runtime.runtime import HostedRuntime

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]

HostedBy = Callable[[PythonRuntime], HostedRuntime]

SMALL = SandboxPolicy(preload=())
CELLS = (
    "n = raw[0]",
    "ticket = reserve(3)",
    "def more(): return n + 1\nit = iter([n])",
    "print(more(), ticket)",
    "open('n.txt', 'w').write(str(n))",
)

UNSEEN = ("import json", "flag = True", "shown = flag\nprint(shown)")
"""The last cell's record is changed to omit its read of `flag`, as if tracking had missed it."""


@pytest.fixture
def reserved() -> list[int]:
    return []


@pytest.fixture
def runtime(reserved: list[int]) -> Iterator[PythonRuntime]:
    """A runtime whose host function has an effect outside."""

    def reserve(seats: int) -> int:
        reserved.append(seats)
        return len(reserved)

    variables, functions = [Variable("raw", [1, 2])], [Function(reserve, host=True)]
    with PythonRuntime(sandbox=SMALL, variables=variables, functions=functions, audit_patches=1.0) as runtime:
        runtime.files.write("given.txt", "7")
        for cell in CELLS:
            assert runtime.execute(cell).success
        yield runtime


@pytest.fixture
def hosted_by(where: Place) -> HostedBy:
    """The runtime as its host sees it."""
    return where.hosted


def blind(hosted: HostedRuntime, step: int, name: str) -> None:
    """Removes the step's read of that name, as if tracking had missed it."""
    tree = hosted.history.tree
    record = tree.get(step)
    assert record.trace is not None
    reads = {each: version for each, version in record.trace.reads.items() if each != trace.name(name)}
    tree.replace(replace(record, trace=replace(record.trace, reads=reads)))


def patched(runtime: PythonRuntime, step: int, code: str) -> Audit | None:
    state = runtime.state
    return state.apply(state.plan(Patch.replace_step(step, code))).audit


def test_a_sound_patch_passes_and_nothing_outside_is_done_again(
    runtime: PythonRuntime, reserved: list[int]
) -> None:
    """Variables, files and output; functions and iterators are compared by their descriptions."""
    assert Audit(outcome="same", described=("it", "more", "reserve")) == patched(
        runtime, 1, "n = raw[1] + int(open('given.txt').read())"
    )
    assert [3] == reserved
    assert "(9, 10, b'9')" == runtime.execute("n, more(), open('n.txt', 'rb').read()").value


def test_what_changes_with_each_run_is_no_alarm(runtime: PythonRuntime) -> None:
    """The audit names it instead."""
    runtime.execute("import time; now = time.perf_counter_ns()")
    audit = patched(runtime, 1, "n = 5")
    assert audit is not None
    assert ("unsteady", Unlike(names=("now",))) == (audit.outcome, audit.unlike)


def test_an_unsound_patch_raises_an_alarm_and_can_be_taken_back(hosted_by: HostedBy) -> None:
    """It names the variable, the step with other output, and the steps that were not run again."""
    with PythonRuntime(sandbox=SMALL, audit_patches=1.0) as runtime:
        for cell in UNSEEN:
            assert runtime.execute(cell).success
        blind(hosted_by(runtime), 3, "flag")
        with pytest.raises(UnsoundError, match="variables shown") as raised:
            patched(runtime, 2, "flag = False")
        alarm = raised.value
        [*_, told] = runtime.state.steps
        assert Unlike(names=("shown",), steps=(told.number,)) == alarm.audit.unlike
        assert ((2,), True) == (alarm.rerun, 3 in alarm.reused)
        again = runtime.state.revert(alarm.patch)
        assert ("applied", Audit(outcome="same")) == (again.status, again.audit)


def test_what_a_client_has_put_in_since_is_there_too(runtime: PythonRuntime) -> None:
    """The full run puts it in at the same place."""
    runtime.inject(Variable("late", [1]))
    runtime.execute("later = late.pop()")
    runtime.update_variable("late", [2])
    audit = patched(runtime, 4, "print('patched')")
    assert audit is not None
    assert "same" == audit.outcome


def test_a_history_that_cannot_begin_again_says_so(
    runtime: PythonRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large value that a client put in and then replaced is not retained."""
    monkeypatch.setattr(injection_log, "MAX_FORMER", 0)
    runtime.inject(Variable("late", bytes(MAX_PUT_IN + 1)))
    runtime.update_variable("late", 1)
    runtime.update_variable("late", bytes(MAX_PUT_IN + 1))
    runtime.update_variable("late", 2)
    audit = patched(runtime, 4, "print('patched')")
    assert audit is not None
    assert ("not checked", True) == (audit.outcome, "`late`, is not kept any more" in audit.reason)


@pytest.mark.at("embedded")
def test_a_branch_is_audited_from_the_start_of_its_history(runtime: PythonRuntime) -> None:
    """The steps before the fork run too; a branch inherits its source's setting."""
    with runtime.fork() as branch:
        branch.execute("m = n * 2")
        audit = patched(branch, branch.state.head, "m = n * 3")
        assert audit is not None
        assert "same" == audit.outcome


@pytest.mark.at("embedded")
def test_a_restored_runtime_is_audited_from_the_start_of_its_record(tmp_path: Path) -> None:
    """Without a record, its history begins with an unknown state."""
    history = tmp_path / "history.sqlite"
    with PythonRuntime(sandbox=SMALL, store=tmp_path, name="r", durable=True, history=history) as runtime:
        assert runtime.execute("n = 1").success
    for record, outcome in ((history, "same"), (None, "not checked")):
        with PythonRuntime.restore(
            tmp_path, "r", durable=True, sandbox=SMALL, history=record, audit_patches=1.0
        ) as restored:
            restored.execute("m = n")
            audit = patched(restored, restored.state.head, "m = 2 * n")
            assert audit is not None
            assert outcome == audit.outcome


def test_a_build_is_audited_as_patches_are() -> None:
    """With the sync and the async API."""

    async def built() -> Audit | None:
        async with AsyncPythonRuntime(sandbox=SMALL, audit_patches=1.0) as runtime:
            await runtime.execute("open('m.py', 'w').write('n = 1')")
            await runtime.execute("import m\nk = m.n")
            state = runtime.state
            await state.declare(Artifact("m.py", "module"))
            await runtime.execute("open('m.py', 'w').write('n = 22')")
            result = await state.build()
            assert ("built", "22") == (result.status, (await runtime.execute("k")).value)
            return result.applied.audit if result.applied is not None else None

    assert Audit(outcome="same", described=()) == asyncio.run(built())


@pytest.mark.at("embedded")
def test_nothing_is_audited_unless_asked_for() -> None:
    """It takes as long as the whole history."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        runtime.execute("a = 1")
        assert patched(runtime, 1, "a = 2") is None


@pytest.mark.at("embedded")
@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), True, "0.5"])
def test_a_share_is_from_0_to_1(share: float) -> None:
    """Anything else is refused before a runtime is made."""
    with pytest.raises(UsageError, match="share from 0 to 1"):
        PythonRuntime(audit_patches=share)
