"""A process is killed in the middle of a patch of a durable runtime: the patch is applied in full or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cenote.runtime import PythonRuntime

CHILD = """
import os, signal, sys
from cenote.harness import ApplyOptions, Patch, Progress
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

def ended_at(position):
    def told(progress: Progress) -> None:
        if progress.position == position:
            runtime.core.backend.history.flush()  # as it is when a step takes its time
            os.kill(os.getpid(), signal.SIGKILL)
    return told

if __name__ == "__main__":
    sandbox = SandboxPolicy(preload=())
    with PythonRuntime(sandbox=sandbox, store="store", name="a", durable=True, history="steps.sqlite") as runtime:
        for code in ("a = [1]", "b = a[0] + 1", "c = b + 1; a.append(c)", "d = sum(a)"):
            assert runtime.execute(code).success
        plan = runtime.state.plan(Patch.replace_step(2, "b = a[0] + 10"))
        runtime.state.apply(plan, ApplyOptions(progress=ended_at(int(sys.argv[1]))))
        os.kill(os.getpid(), signal.SIGKILL)
"""

BEFORE, BEHIND = "([1, 3], 2, 3, 4)", "([1, 12], 11, 12, 13)"


@pytest.mark.slow
@pytest.mark.parametrize(("position", "left"), [(3, BEFORE), (4, BEFORE), (99, BEHIND)])
def test_a_patch_is_stored_as_a_whole(tmp_path: Path, position: int, left: str) -> None:
    """position: of the step before which the process is killed; the last time, as soon as the patch is applied."""
    child = [sys.executable, "-c", CHILD, str(position)]
    done = subprocess.run(child, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert -9 == done.returncode, done.stderr
    history = str(tmp_path / "steps.sqlite")
    with PythonRuntime.restore(str(tmp_path / "store"), "a", history=history) as runtime:
        codes = [step.code for step in runtime.state.steps]
        assert [f"b = a[0] + {1 if left == BEFORE else 10}"] == [code for code in codes if code[0] == "b"]
        assert left == runtime.execute("a, b, c, d").value
