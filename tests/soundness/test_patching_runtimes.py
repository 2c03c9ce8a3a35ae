"""Patches of real runtimes: both APIs, host calls that are made once, all or nothing, reverts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.harness import ApplyOptions, Patch, StalePlanError
from cenote.harness.patching.errors import StepNotRepeatedError
from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, Variable
from cenote_security.errors import UnknownEntryError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.rules import ImportRule, SecurityChecker, SecurityError

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]

SMALL = SandboxPolicy(preload=())
CELLS = ("x = 1", "y = x + 1", "z = [5]", "w = y * 2\nprint(w)", "z.append(6)")


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SMALL) as made:
        for cell in CELLS:
            made.execute(cell)
        yield made


def test_only_what_follows_from_a_patch_is_run_again(runtime: PythonRuntime) -> None:
    """The other steps stand: their results are in place, or are copied from a stored state."""
    state = runtime.state
    plan = state.plan(Patch.replace_step(1, "x = 5"))
    result = state.apply(plan)
    assert ({1, 2, 4}, {3, 5}) == (
        {step.number for step in plan.rerun},
        {step.number for step in plan.reused},
    )
    assert ("applied", (1, 2, 4), (3, 5)) == (result.status, result.steps_rerun, result.steps_reused)
    assert ("w", "x", "y") == result.changed
    assert ["", "", "", "12\n", ""] == [step.stdout for step in state.steps]
    assert "(5, 6, [5, 6], 12)" == runtime.execute("(x, y, z, w)").value


@pytest.mark.at("embedded", "platform", "relayed")
def test_a_patch_is_taken_back_and_what_came_after_it_stays(runtime: PythonRuntime) -> None:
    """By its id; an unknown id is an error."""
    state = runtime.state
    plan = state.plan(Patch.replace_step(1, "x = 5"))
    state.apply(plan)
    runtime.execute("later = w")
    assert "applied" == state.revert(plan.patch.id).status
    assert "(1, 2, [5, 6], 4, 4)" == runtime.execute("(x, y, z, w, later)").value
    with pytest.raises(UnknownEntryError):
        state.revert("never")


@pytest.mark.at("embedded")
def test_a_step_that_waits_for_ever_ends_by_the_limit(runtime: PythonRuntime) -> None:
    """The patch's limit, where the step has none of its own; the state is unchanged then."""
    state = runtime.state
    plan = state.plan(Patch.replace_step(3, "import threading\nthreading.Event().wait()"))
    result = state.apply(plan, ApplyOptions(timeout=0.5))
    assert ("failed", 3) == (result.status, result.failure and result.failure.origin)
    assert "time" == (result.failure and result.failure.error and result.failure.error.reason)
    assert ("(1, 2, [5, 6], 4)", 5) == (runtime.execute("(x, y, z, w)").value, result.head)


@pytest.mark.at("embedded")
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_limit_is_a_length_of_time(seconds: float) -> None:
    with pytest.raises(UsageError):
        ApplyOptions(timeout=seconds)


@pytest.mark.at("embedded")
def test_a_counter_of_the_kernel_is_not_read_twice(runtime: PythonRuntime) -> None:
    """A copy of the process has the counter that was read already: the steps before it are run again as well."""
    for cell in ("import os", "fd = os.eventfd(3)"):
        runtime.execute(cell)
    read = runtime.execute("r = os.eventfd_read(fd)").step
    state = runtime.state
    result = state.apply(
        state.plan(Patch.replace_step(read, "r = os.eventfd_read(fd) + 1")), ApplyOptions(timeout=60)
    )
    assert ("applied", "4") == (result.status, runtime.execute("r").value)


@pytest.mark.at("embedded", "platform", "relayed")
def test_a_failure_in_the_middle_leaves_everything_as_it_was(runtime: PythonRuntime) -> None:
    """Names, the head and the line."""
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(1, "x = 'text'")))
    assert ("failed", "TypeError") == (result.status, result.failure and result.failure.error.type)
    assert ("(1, 2, [5, 6], 4)", 5) == (runtime.execute("(x, y, z, w)").value, result.head)
    assert [*CELLS, "(x, y, z, w)"] == [step.code for step in runtime.state.steps]


def test_the_head_goes_where_the_state_goes(runtime: PythonRuntime) -> None:
    """By both rollback methods, and each next step follows the restored one."""
    runtime.state.rollback(2)
    assert 2 == runtime.state.head
    assert "['x', 'y']" == runtime.execute("sorted({'x', 'y', 'z'} & {*globals()})").value
    runtime.rollback(0)
    runtime.execute("x = 7")
    assert ["x = 7"] == [step.code for step in runtime.state.steps]


def test_files_are_those_of_a_full_run() -> None:
    """A file of a step that stands is copied, and a file of a step that is run again is written again."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        runtime.execute("n = 1")
        runtime.execute("open('kept.txt', 'w').write('kept')")
        runtime.execute("open('n.txt', 'a').write(str(n))")
        state = runtime.state
        plan = state.plan(Patch.replace_step(1, "n = 2"))
        assert "step 2: restore, since nothing that it depends on is different" in plan.explain()
        assert (1, 3) == state.apply(plan).steps_rerun
        assert (b"2", b"kept") == (runtime.files.read("n.txt"), runtime.files.read("kept.txt"))


@pytest.mark.at("embedded", "platform", "relayed")
def test_recorded_answers_stand_for_equal_host_calls() -> None:
    """A call with an effect outside is made once; a different call of a patch is not made."""
    sent: list[object] = []

    def send(to: str) -> int:
        sent.append(to)
        return len(sent)

    with PythonRuntime(sandbox=SMALL, functions=[Function(send, host=True)]) as runtime:
        runtime.execute("who, text = 'ana', 'hello'")
        runtime.execute("number = send(who)\nprint(text, number)")
        state = runtime.state
        result = state.apply(state.plan(Patch.replace_step(1, "who, text = 'ana', 'bye'")))
        assert ("applied", ["ana"], "bye 1\n") == (result.status, sent, result.records[-1].stdout)
        blocked = state.apply(state.plan(Patch.replace_step(1, "who, text = 'ben', 'bye'")))
        assert ("blocked", "send", ["ana"]) == (
            blocked.status,
            blocked.blocked and blocked.blocked.target,
            sent,
        )
        assert "('ana', 1)" == runtime.execute("who, number").value


def test_a_plan_is_for_the_state_that_it_was_made_in(runtime: PythonRuntime) -> None:
    """Another step has been run in between."""
    plan = runtime.state.plan(Patch.replace_step(1, "x = 5"))
    runtime.execute("x = 3")
    with pytest.raises(StalePlanError):
        runtime.state.apply(plan)


def test_what_a_client_has_put_in_stands_or_is_refused() -> None:
    """An injection cannot be run again; patches after it apply, and patches whose results can be copied."""
    with PythonRuntime(sandbox=SMALL, variables=[Variable("raw", [1])]) as runtime:
        runtime.execute("a = 1")
        runtime.update_variable("raw", [2])
        runtime.execute("b = raw[0] + a")
        state = runtime.state
        state.apply(state.plan(Patch.replace_step(1, "a = 10")))
        assert "(12, [2])" == runtime.execute("b, raw").value
        with pytest.raises(UsageError):
            state.plan(Patch.replace_step(2, "raw = [3]"))
    assert issubclass(StepNotRepeatedError, UsageError)


def test_a_patch_brings_in_nothing_that_the_rules_refuse() -> None:
    """Then nothing has run."""
    checker = SecurityChecker([ImportRule({"socket"})])
    with PythonRuntime(sandbox=SMALL, security_checker=checker) as runtime:
        runtime.execute("x = 1")
        state = runtime.state
        with pytest.raises(SecurityError):
            state.apply(state.plan(Patch.replace_step(1, "import socket\nx = 2")))
        assert "1" == runtime.execute("x").value


def test_authors_who_are_attached_cannot_change_the_history(runtime: PythonRuntime) -> None:
    """They share it with its owner."""
    with pytest.raises(UsageError):
        runtime.attach("ana").state.plan(Patch.replace_step(1, "x = 5"))


def test_cancelled_between_two_steps_it_puts_everything_back(runtime: PythonRuntime) -> None:
    """The cancel callback is called before each step."""
    asked: list[int] = []
    state = runtime.state
    plan = state.plan(Patch.replace_step(1, "x = 5"))
    options = ApplyOptions(cancelled=lambda: asked.append(1) is None and len(asked) > 2)
    assert "cancelled" == state.apply(plan, options).status
    assert "(1, 2, [5, 6], 4)" == runtime.execute("(x, y, z, w)").value


async def test_the_asynchronous_face_awaits_changes() -> None:
    """Queries return at once."""
    async with AsyncPythonRuntime(sandbox=SMALL) as runtime:
        for cell in CELLS[:3]:
            await runtime.execute(cell)
        state = runtime.state
        plan = await state.plan(Patch.replace_step(1, "x = 5"))
        result = await state.apply(plan)
        assert ((1, 2), "(5, 6)") == (result.steps_rerun, (await runtime.execute("x, y")).value)
        await state.revert(plan.patch.id)
        assert "(1, 2)" == (await runtime.execute("x, y")).value
        await state.rollback(0)
        assert 0 == state.head
