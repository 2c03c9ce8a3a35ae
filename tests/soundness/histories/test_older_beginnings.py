"""Patches that begin with a state older than a step with an incomplete trace."""

from __future__ import annotations

from cenote.harness import Patch
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

CELLS = (
    "import subprocess, tempfile, threading\n"
    "path = f'{tempfile.gettempdir()}/told.txt'\n"
    "going = threading.Event(); thread = threading.Thread(target=going.wait); thread.start()",
    "status = subprocess.run(f'echo 1 >> {path}', shell=True).returncode",
    "told = open(path).read()",
    "going.set(); thread.join(); del going, thread",
)
"""No state is stored while the thread runs, and the step that starts it may do anything."""


def test_a_temporary_file_of_the_old_line_is_gone_when_the_new_one_begins() -> None:
    """No step looked for it at that time, but the first step that did had not found it."""
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        assert all(runtime.execute(cell).success for cell in ("begun = True", *CELLS))
        state = runtime.state
        plan = state.plan(Patch.replace_step(3, CELLS[1].replace("echo 1", "echo 2")))
        assert "from the kept state after step 1" in plan.explain()
        assert "applied" == state.apply(plan).status
        assert r"'2\n'" == runtime.execute("told").value


def test_what_is_kept_for_going_back_is_no_file_of_a_step() -> None:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        runtime.execute("import subprocess; n = subprocess.run('echo 1 > seen.txt', shell=True).returncode")
        runtime.execute("n = subprocess.run('echo 2 > seen.txt', shell=True).returncode")
        written = runtime.core.read_history().tree.get(2).trace
        assert written is not None
        assert {"file:seen.txt", "file:."} == {each for each in written.writes if each.startswith("file:")}
