"""What is given by mistake is refused by name, before anything happens; and a name that is meant is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cenote.harness import Artifact, Patch
from cenote.runtime import PythonRuntime, Variable, foretold
from cenote.security import SecurityChecker
from cenote_security.errors import NameExistsError, UnknownEntryError, UnknownNameError, UsageError

Given = Callable[[PythonRuntime], object]

MISTAKES: dict[str, Given] = {
    "merge takes a runtime that `fork` has made, not NoneType": lambda given: given.merge(None),  # type: ignore[arg-type]
    "a fork makes at most 256 runtimes at once, not 1000000": lambda given: given.fork(count=10**6),
    "a kept state is named by the number of its step or by a label, not -1": lambda given: given.fork(-1),
    "path is a text, bytes or a pathlib.PurePath, not NoneType": lambda given: given.files.read(None),  # type: ignore[arg-type]
    "written from bytes or text, not NoneType": lambda given: given.files.write("a", None),  # type: ignore[arg-type]
    "such as `file:data.csv`, not int": lambda given: given.state.blame(5),  # type: ignore[arg-type]
    "such as `file:data.csv`, not NoneType": lambda given: given.state.dependents(None),  # type: ignore[arg-type]
    "plan is made from a Patch, such as .*, not str": lambda given: given.state.plan("x = 2"),  # type: ignore[arg-type]
    "the Plan that `plan\\(patch\\)` gives, not NoneType": lambda given: given.state.apply(None),  # type: ignore[arg-type]
    "what is declared is an Artifact, such as .*, not str": lambda given: given.state.declare("shop.py"),  # type: ignore[arg-type]
    "code of a patch are texts, not NoneType": lambda _: Patch.replace_step(1, None),  # type: ignore[arg-type]
    "name of an artifact is a text, not NoneType": lambda _: Artifact(None, "module"),  # type: ignore[arg-type]
    "file or the URL of a database, not 5": lambda _: PythonRuntime(history=5),  # type: ignore[arg-type]
    "sandbox is a SandboxPolicy, not dict": lambda _: PythonRuntime(sandbox={}),  # type: ignore[arg-type]
    "rules are SecurityRule objects, such as .*, not 'os'": lambda _: SecurityChecker(["os"]),  # type: ignore[list-item]
    "name of checkpoints is a text, not NoneType": lambda _: foretold("checkpoints", None),  # type: ignore[arg-type]
}


def test_mistakes_are_told(runtime: PythonRuntime) -> None:
    """Each is a UsageError that says what is meant; the runtime is as it was."""
    runtime.execute("x = 1")
    for told, given in MISTAKES.items():
        with pytest.raises(UsageError, match=told):
            given(runtime)
    assert runtime.execute("x").value == "1"


def test_labels_of_checkpoints(make_runtime: Callable[..., PythonRuntime], tmp_path: Path) -> None:
    """They keep to the rule of snapshots' labels, and an unknown one is named as it was given."""
    runtime = make_runtime(store=tmp_path, name="analysis")
    for label in (5, "a\0b", "x" * 101):
        with pytest.raises(UsageError, match="a label is a text of at most 100 characters"):
            runtime.checkpoint(label)  # type: ignore[arg-type]
    runtime.checkpoint("loaded")
    runtime.close()
    with pytest.raises(UnknownEntryError, match="no checkpoint 'analysis lost' here"):
        PythonRuntime.restore(tmp_path, "analysis", "lost")


def test_names_that_are_not_described(runtime: PythonRuntime) -> None:
    """What `inject` advises works: a name with an underscore can be replaced."""
    runtime.execute("_rate = 1")
    with pytest.raises(NameExistsError, match="use update_variable"):
        runtime.inject(Variable("_rate", 2))
    runtime.update_variable("_rate", 2)
    assert runtime.retrieve("_rate") == 2
    with pytest.raises(UnknownNameError, match="`describe\\(\\)` lists"):
        runtime.update_variable("absent", 2)


def test_what_is_printed(make_runtime: Callable[..., PythonRuntime]) -> None:
    """In a notebook or a debugger, a runtime, its state and a plan are a line each."""
    runtime = make_runtime(name="analysis")
    assert repr(runtime) == "<PythonRuntime 'analysis' on this machine>"
    assert repr(runtime.attach("ann")) == "<PythonRuntime 'analysis' on this machine, attached as 'ann'>"
    runtime.execute("x = 1")
    assert repr(runtime.state) == "<RuntimeState: 1 steps, head 1>"
    plan = runtime.state.plan(Patch.replace_step(1, "x = 2"))
    assert repr(plan).startswith("<Plan: 1 step to run")
    assert "records" not in repr(runtime.state.apply(plan))
