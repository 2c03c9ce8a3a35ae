"""Agents whose runtimes are on a platform go back and patch like others; the tests are imported."""

from __future__ import annotations

from tests.agent.test_agent_in_jail import test_a_patch_of_a_module_runs_the_tests_that_use_it
from tests.forks.conftest import closing, make
from tests.forks.test_going_back import (
    test_a_failing_block_is_taken_back,
    test_so_many_blocks_are_taken_back,
    test_the_model_goes_back_to_what_it_has_kept,
)

from cenote.agent import CaveAgent
from cenote.models import ScriptedModel
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

__all__ = [
    "closing",
    "make",
    "test_a_failing_block_is_taken_back",
    "test_a_patch_of_a_module_runs_the_tests_that_use_it",
    "test_so_many_blocks_are_taken_back",
    "test_the_model_goes_back_to_what_it_has_kept",
]

ANSWERS = (
    "```python\nrows = [3]\n```",
    "```python\nprint(rows[1])\n```",
    "```patch\nstep 1: too short\n<<<<<<< SEARCH\nrows = [3]\n=======\nrows = [3, 4]\n>>>>>>> REPLACE\n```",
    "Done.",
)


async def test_a_model_patches_what_has_run() -> None:
    """Its prompt says where the values of a failing step came from, and what differs once that is fixed."""
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        agent = CaveAgent(ScriptedModel([*ANSWERS]), runtime, patches=True)
        await agent.run("the task")
        shown = [one.content for one in agent.messages[2:] if one.role == "user"]
        assert "rows: step 1, rows = [3]" in shown[1]
        assert "Patched; ran again: 1-2." == shown[2].splitlines()[0]
        assert ["rows = [3, 4]", "print(rows[1])"] == [step.code for step in runtime.state.steps]
