"""Programs in the record: each is a step with unknown reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from cenote.harness import Patch
from cenote.runtime import PythonRuntime
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        runtime.execute("open('f', 'w').write('1'); x = 1")
        yield runtime


def test_it_is_a_step_between_those_of_cells(runtime: PythonRuntime) -> None:
    """In the order in which its files were seen: a later cell comes after it."""
    runtime.run("echo out; echo 2 > f; exit 3")
    runtime.execute("y = open('f').read()")
    line = runtime.core.read_history().tree.line(3)
    assert [("cell", "ok"), ("process", "failed"), ("cell", "ok")] == [
        (each.kind, each.status) for each in line
    ]
    process = line[1]
    assert ("!echo out; echo 2 > f; exit 3", "out\n") == (process.code, process.stdout)
    assert process.unknown
    assert process.error is not None
    assert "exit code 3" == process.error.message


def test_a_rollback_goes_back_to_before_and_behind_it(runtime: PythonRuntime) -> None:
    runtime.run("echo 2 > f")
    runtime.execute("open('f', 'w').write('3')")
    runtime.rollback(2)
    assert "'2\\n'" == runtime.execute("open('f').read()").value
    runtime.rollback(1)
    assert "'1'" == runtime.execute("open('f').read()").value


def test_what_comes_before_it_is_not_patched(runtime: PythonRuntime) -> None:
    """Anything it has read may differ then: the plan is refused with the reason. Later steps can be patched."""
    runtime.run("cat f > g")
    runtime.execute("z = open('g').read()")
    with pytest.raises(UsageError, match="process beside the namespace"):
        runtime.state.plan(Patch.replace_step(1, "open('f', 'w').write('7'); x = 1"))
    plan = runtime.state.plan(Patch.replace_step(3, "z = open('g').read() * 2"))
    assert not plan.blocked
    runtime.state.apply(plan)
    assert "'11'" == runtime.execute("z").value


def test_a_slice_names_it(runtime: PythonRuntime) -> None:
    """Later steps may depend on its files; the program of a slice cannot run it again."""
    runtime.run("cat f > g")
    runtime.execute("z = open('g').read()")
    found = runtime.state.slice("z")
    assert "# a process beside the namespace: !cat f > g" in found.source
    verified = runtime.state.verify(found)
    assert ("unverifiable", True) == (verified.outcome, "process beside the namespace" in verified.reason)


def test_a_program_that_runs_while_a_cell_does(runtime: PythonRuntime) -> None:
    """Its step is recorded when the cell has ended, with a number of its own."""
    process = runtime.spawn(["cat"])
    runtime.execute("x = 2")
    process.close_stdin()
    process.wait()
    steps = until(lambda: [each for each in runtime.core.read_history().tree if each.kind == "process"])
    assert ("!cat", "ok") == (steps[0].code, steps[0].status)
    assert len({each.number for each in runtime.core.read_history().tree}) == 3


def test_an_attached_author_is_named(runtime: PythonRuntime) -> None:
    with runtime.attach("ann") as ann:
        assert "hi\n" == ann.run("echo hi").stdout
    assert "ann" == runtime.core.read_history().tree.get(2).author


def test_it_is_exported_as_a_note(runtime: PythonRuntime, tmp_path: Path) -> None:
    runtime.run("echo hi")
    runtime.execute("1")
    runtime.state.export(tmp_path / "run.ipynb")
    assert "`!echo hi` run beside the namespace" in (tmp_path / "run.ipynb").read_text()


def test_a_runtime_with_programs_is_not_put_to_rest(runtime: PythonRuntime) -> None:
    """An idle runtime may be hibernated or handed over, which would end them."""
    supervisor = runtime.core.backend.supervisor  # type: ignore[attr-defined]
    with runtime.spawn(["sleep", "3600"]) as process:
        assert process.pid
        assert supervisor.busy
        assert not supervisor.is_parkable
    until(lambda: not supervisor.busy)
