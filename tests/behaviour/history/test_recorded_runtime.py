"""What a runtime records of its requests, with real jails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import PATIENCE

from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.errors import CenoteError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.history.bounds import MAX_CAUSE
from cenote_worker.history.history import History
from cenote_worker.history.host_calls import MAX_CALLS
from cenote_worker.history.step import StepRecord

SMALL = SandboxPolicy(preload=())


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SMALL) as runtime:
        yield runtime


def history(runtime: PythonRuntime) -> History:
    return runtime.core.backend.read_history()


def records(runtime: PythonRuntime) -> list[StepRecord]:
    return list(history(runtime).tree)


def test_each_cell_is_a_step(runtime: PythonRuntime) -> None:
    """With its code, its results and its time; the record exists before the caller gets the result."""
    runtime.execute("print('hello')\n6 * 7")
    runtime.execute("1 / 0")
    first, second = records(runtime)
    assert (1, 0, "ok", "hello\n", "42") == (
        first.number,
        first.parent,
        first.status,
        first.stdout,
        first.value,
    )
    assert (2, 1, "failed", "1 / 0") == (second.number, second.parent, second.status, second.code)
    assert "ZeroDivisionError" == (second.error and second.error.type)
    assert first.started <= second.started
    assert 0 < first.duration < PATIENCE


def test_what_was_there_before_the_first_cell_is_no_step(runtime: PythonRuntime) -> None:
    """It belongs to the state that the first step begins in."""
    runtime.inject(Variable("a", 1), Variable("b", 2), Variable("c", 3))
    runtime.delete("b")
    runtime.update_variable("a", 5)
    runtime.execute("1")
    assert [1] == [record.number for record in records(runtime)]
    assert ["a", "c"] == sorted(history(runtime).begun)


def test_changes_without_code_are_steps(runtime: PythonRuntime, tmp_path: Path) -> None:
    """Each follows the present head; a refused one leaves nothing."""
    (tmp_path / "data.csv").write_text("1,2")
    runtime.execute("x = 1")
    runtime.inject(Variable("y", 2))
    runtime.update_variable("x", 3)
    runtime.delete("y")
    with pytest.raises(CenoteError):
        runtime.delete("nothing")
    runtime.files.upload(tmp_path / "data.csv", "data.csv")
    runtime.files.delete("data.csv")
    found = [(record.kind, record.names) for record in records(runtime)]
    assert [
        ("cell", ()),
        ("injection", ("y",)),
        ("injection", ("x",)),
        ("deletion", ("y",)),
        ("upload", ("data.csv",)),
        ("removal", ("data.csv",)),
    ] == found
    line = history(runtime).tree.line(history(runtime).tree.head)
    assert found == [(record.kind, record.names) for record in line]


def test_what_only_looks_is_no_step(runtime: PythonRuntime) -> None:
    """Neither descriptions nor retrieved values nor file listings."""
    runtime.execute("x = 1")
    runtime.describe(), runtime.retrieve("x"), runtime.files.list(), runtime.share("x")
    assert 1 == len(records(runtime))


def test_steps_have_authors(runtime: PythonRuntime) -> None:
    """Steps of private namespaces say so."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben", scope="private")
    runtime.execute("1")
    ana.execute("2")
    ben.execute("3")
    ana.inject(Variable("x", 1))
    assert [("", False), ("ana", False), ("ben", True), ("ana", False)] == [
        (record.author, record.private) for record in records(runtime)
    ]


def test_a_step_has_the_cause_that_its_author_gave(runtime: PythonRuntime) -> None:
    """Such as a model call; a cause that is no text, or too long, is refused before anything runs."""
    runtime.execute("x = 1", cause="call-7")
    assert ("call-7", 1) == (runtime.state.step(1).cause, len(runtime.state.steps))
    for cause in ("x" * (MAX_CAUSE + 1), 7):
        with pytest.raises(UsageError, match="a cause is"):
            runtime.execute("x = 2", cause=cause)  # type: ignore[arg-type]
    assert 1 == runtime.retrieve("x")


def test_a_jail_that_is_lost_takes_the_line_with_it() -> None:
    """The next step begins at the start."""
    with PythonRuntime(sandbox=SandboxPolicy(snapshots="none")) as runtime:
        runtime.inject(Variable("kept", 1))
        runtime.execute("x = 1")
        runtime.execute("import os; os._exit(3)")
        runtime.execute("1")
        found = [(record.number, record.parent, record.status) for record in records(runtime)]
        assert [(1, 0, "ok"), (2, 1, "lost"), (3, 0, "ok")] == found
        assert ("kept",) == history(runtime).begun


def test_a_cell_that_is_rolled_back_leaves_the_head(runtime: PythonRuntime) -> None:
    """The next step follows the one before it."""
    runtime.execute("x = 1")
    runtime.execute("import os; os._exit(3)")
    runtime.execute("1")
    found = [(record.number, record.parent, record.status) for record in records(runtime)]
    assert [(1, 0, "ok"), (2, 1, "rolled_back"), (3, 1, "ok")] == found


def test_a_reset_moves_the_head_to_the_start(runtime: PythonRuntime) -> None:
    """No step is dropped."""
    runtime.execute("x = 1")
    runtime.reset()
    assert (0, 1) == (history(runtime).tree.head, len(records(runtime)))
    runtime.execute("y = 1")
    assert [(1, 0), (2, 0)] == [(record.number, record.parent) for record in records(runtime)]


def test_host_calls_are_noted_with_their_step() -> None:
    """Equal arguments have one digest; an error is noted as one; effects are the declared ones."""

    def ask(x: int) -> int:
        return 10 // x

    def tell(text: str) -> None:
        return None

    functions = [Function(ask, host=True, effect="pure"), Function(tell, host=True)]
    with PythonRuntime(sandbox=SMALL, functions=functions) as runtime:
        runtime.execute("a = ask(5), ask(x=5), ask(5)")
        runtime.execute("ask(0)")
        runtime.execute("tell('abc')")
        first, failed, third = records(runtime)
    digests = [call.digest for call in first.host_calls]
    assert 32 == len(digests[0])
    assert digests[0] == digests[2] != digests[1]
    assert {("ask", "pure")} == {(call.target, call.effect) for call in first.host_calls}
    assert all(call.arguments and call.reply and call.parts for call in first.host_calls)
    assert ("ZeroDivisionError", None) == (
        failed.host_calls[0].error and failed.host_calls[0].error.type,
        failed.host_calls[0].reply,
    )
    assert ["external"] == [call.effect for call in third.host_calls]


@pytest.mark.slow
def test_large_arguments_are_compared_and_not_kept() -> None:
    """Arguments too large for a packet; and only the number of very many calls."""

    def take(x: object) -> None:
        return None

    with PythonRuntime(sandbox=SandboxPolicy(), functions=[Function(take, host=True)]) as runtime:
        runtime.execute("import numpy as np\nbig = np.zeros(20_000)\ntake(big); take(big); take(big + 1)")
        calls = records(runtime)[0].host_calls
        assert [None] * 3 == [call.arguments for call in calls]
        assert calls[0].digest == calls[1].digest != calls[2].digest
        runtime.execute(f"for n in range({MAX_CALLS} + 5): take(n)")
        many = records(runtime)[1]
        assert (MAX_CALLS, 5) == (len(many.host_calls), many.dropped_calls)


def test_a_history_in_a_file_goes_on(tmp_path: Path) -> None:
    """In the next process: its numbers are not reused, its state is gone."""
    place = tmp_path / "steps.sqlite"
    for code in ("x = 1", "y = 2"):
        with PythonRuntime(sandbox=SMALL, history=place) as runtime:
            runtime.execute(code)
            runtime.state.flush()
    with PythonRuntime(sandbox=SMALL, history=place) as runtime:
        assert ["x = 1", "y = 2"] == [step.code for step in runtime.state.history]
        assert [(1, 0), (2, 0)] == [(step.number, step.parent) for step in runtime.state.history]


def test_a_history_has_one_runtime(tmp_path: Path) -> None:
    """A second one is refused before anything runs."""
    place = tmp_path / "steps.sqlite"
    with PythonRuntime(sandbox=SMALL, history=place), pytest.raises(CenoteError, match="another runtime"):
        PythonRuntime(sandbox=SMALL, history=place)


def test_a_remote_runtime_takes_no_place_for_its_history() -> None:
    """Its platform stores it."""
    with pytest.raises(UsageError, match="by its platform"):
        PythonRuntime(address="localhost:1", token="t", history="steps.sqlite")


def test_code_with_lone_surrogates(tmp_path: Path) -> None:
    """It is code like any other, in memory and in a file."""
    place = tmp_path / "steps.sqlite"
    code = "x = '\ud800'"
    for _ in range(2):
        with PythonRuntime(sandbox=SMALL, history=place) as runtime:
            runtime.execute(code)
    with PythonRuntime(sandbox=SMALL, history=place) as runtime:
        assert {code} == {step.code for step in runtime.state.history}
