"""Patches of lines much longer than the number of stored states: a state that a patch needs remains until it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.harness import ApplyOptions, Patch
from cenote.harness.applying.apply import Progress
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

LENGTH = 30

KEPT = 8

FIRST = "import os\na, done, seen, met = 1, [], {}, [5]\ndef use(): return 0"


def cell(number: int) -> str:
    """Steps that change existing objects, read values from much earlier steps, or are independent."""
    match number:
        case 24:
            return "met.append(2)"
        case 27:
            return "found = use()"
    match number % 3:
        case 0:
            return f"done.append(a + {number})"
        case 1:
            return f"b{number} = len(done) + {number}"
    return f"seen[{number}] = sum(done[-2:])\nif a == 666 and {number} == 17: os._exit(1)"


CELLS = [FIRST, *map(cell, range(2, LENGTH + 1))]

NUMBERED = "sorted((key, globals()[key]) for key in globals() if key[:1] == 'b' and key[1:].isdigit())"
LOOK = f"a, done, seen, met, found, {NUMBERED}"


@pytest.fixture(scope="module")
def full() -> Iterator[PythonRuntime]:
    """Only its final state is looked at."""
    with PythonRuntime(sandbox=SandboxPolicy(preload=(), snapshots="none", tracking=False)) as runtime:
        yield runtime


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        for each in CELLS:
            assert runtime.execute(each).success
        yield runtime


def looks(runtime: PythonRuntime, cells: list[str]) -> str | None:
    runtime.reset()
    for each in cells:
        runtime.execute(each)
    return runtime.execute(LOOK).value


def kept_in_the_end(runtime: PythonRuntime) -> int:
    """The number of snapshots once the state has changed again."""
    runtime.execute("later = 1")
    runtime.snapshot()
    return len(runtime.snapshots())


MISSED = "a = a + 1\ndef use(): return len(met)"
"""Only a later call shows that this needs `met`: the walk starts again, late."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 15, 21, 28], ids=["early", "in the middle", "later", "late"])
def test_a_step_of_a_long_line_is_patched(runtime: PythonRuntime, full: PythonRuntime, number: int) -> None:
    """Most states of the line are dropped; needed ones stay, however much is run in between."""
    code = f"{CELLS[number - 1]}\n{MISSED}"
    state = runtime.state
    assert "applied" == state.apply(state.plan(Patch.replace_step(number, code))).status
    assert looks(full, [*CELLS[: number - 1], code, *CELLS[number:]]) == runtime.execute(LOOK).value
    assert KEPT >= kept_in_the_end(runtime)


@pytest.mark.slow
def test_patches_follow_each_other(runtime: PythonRuntime, full: PythonRuntime) -> None:
    """Each begins from the state that the one before has left."""
    codes = list(CELLS)
    for number, change in (
        (28, "a = a + 1"),
        (3, "done.append(7)"),
        (16, "done.clear()"),
    ):
        codes[number - 1] += f"\n{change}"
        state = runtime.state
        plan = state.plan(Patch.replace_step(state.steps[number - 1].number, codes[number - 1]))
        assert "applied" == state.apply(plan).status
    assert looks(full, codes) == runtime.execute(LOOK).value


@pytest.mark.slow
def test_a_process_that_dies_in_the_middle_takes_nothing_along(runtime: PythonRuntime) -> None:
    """The state is restored, and no more snapshots exist than before."""
    before = runtime.execute(LOOK).value
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(1, f"{FIRST}\na = 666")))
    assert "failed" == result.status
    assert before == runtime.execute(LOOK).value
    assert KEPT >= kept_in_the_end(runtime)


@pytest.mark.slow
def test_an_interrupt_in_the_middle_takes_nothing_along(runtime: PythonRuntime) -> None:
    """As above, for an interrupt."""
    before, state = runtime.execute(LOOK).value, runtime.state

    def interrupt(progress: Progress) -> None:
        if progress.position == LENGTH - 3:
            assert KEPT <= len(runtime.snapshots()) <= 12
            raise KeyboardInterrupt

    state.refresh()
    plan = state.plan(Patch.replace_step(1, f"{FIRST}\na = 5"))
    with pytest.raises(KeyboardInterrupt):
        state.apply(plan, ApplyOptions(progress=interrupt))
    assert before == runtime.execute(LOOK).value
    assert KEPT >= kept_in_the_end(runtime)
