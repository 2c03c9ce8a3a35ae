"""Inspect's sandbox `e2b`, of the package inspect-sandboxes: Inspect's own checks of sandboxes, and an evaluation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelAPI, ModelOutput, get_model, modelapi
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from inspect_sandboxes.e2b._e2b import E2BSandboxEnvironment

CANNOT = {"test_exec_as_user": "a jail has one user"}


@pytest.fixture
async def sandbox_env(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    name = request.node.originalname
    if name in CANNOT:
        request.node.add_marker(pytest.mark.xfail(reason=CANNOT[name], strict=True))
    await E2BSandboxEnvironment.task_init("task", None)
    made = await E2BSandboxEnvironment.sample_init("task", None, {})
    yield made["default"]
    await E2BSandboxEnvironment.sample_cleanup("task", None, made, False)


@modelapi("scripted")
class Scripted(ModelAPI):
    """Runs these commands in order, then answers with the output of the last one."""

    def __init__(self, model_name: str, commands: Any = (), **_: Any) -> None:
        super().__init__(model_name)
        self.commands = list(commands)

    async def generate(self, input: Any, *_: Any, **__: Any) -> ModelOutput:
        if self.commands:
            return ModelOutput.for_tool_call("scripted", "bash", {"command": self.commands.pop(0)})
        return ModelOutput.from_content("scripted", input[-1].text)


async def test_an_evaluation_runs_in_a_sandbox(tmp_path: Any) -> None:
    task = Task(
        dataset=[Sample(input="Compute.", target="42", files={"n.txt": "6\n"})],
        solver=[use_tools(bash()), generate()],
        scorer=includes(),
        sandbox="e2b",
    )
    model = get_model("scripted/one", commands=["echo $(($(cat n.txt) * 7)) > out", "cat out"], memoize=False)
    (log,) = await eval_async(task, model=model, log_dir=str(tmp_path))
    assert log.status == "success", log.error
    assert log.results is not None
    assert log.results.scores[0].metrics["accuracy"].value == 1
