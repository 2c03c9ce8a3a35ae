"""A runtime as a sandbox of Inspect, by Inspect's own checks; its tool `python`, whose namespace stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="needs inspect-ai: `make test-peers` has it")

from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelAPI, ModelOutput, get_model, modelapi
from inspect_ai.solver import generate, use_tools
from inspect_ai.util import SandboxUnavailableError, SandboxUserUnsupportedError
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from cenote.adapters.inspect import USER, CenoteSandboxEnvironment, python
from cenote_security.errors import UsageError

CANNOT = {
    "test_exec_as_user": "a jail has one user",
}
"""Inspect's checks that do not apply."""


@pytest.fixture
async def sandbox_env(request: pytest.FixtureRequest) -> AsyncIterator[CenoteSandboxEnvironment]:
    name = request.node.originalname
    if name in CANNOT:
        request.node.add_marker(pytest.mark.xfail(reason=CANNOT[name], strict=True))
    made = await CenoteSandboxEnvironment.sample_init("task", None, {})
    yield made["default"].as_type(CenoteSandboxEnvironment)
    await CenoteSandboxEnvironment.sample_cleanup("task", None, made, False)


@modelapi("scripted")
class Scripted(ModelAPI):
    """Calls the tool with these codes in order. (Inspect's own mock downloads a tokenizer.)"""

    def __init__(self, model_name: str, codes: Any = (), **_: Any) -> None:
        super().__init__(model_name)
        self.codes = list(codes)

    async def generate(self, *_: Any, **__: Any) -> ModelOutput:
        if self.codes:
            return ModelOutput.for_tool_call("scripted", "python", {"code": self.codes.pop(0)})
        return ModelOutput.from_content("scripted", "done")

    async def count_text_tokens(self, text: str) -> int:
        return len(text)


async def texts(tmp_path: Path, *codes: str, sandbox: Any = "cenote", **options: Any) -> list[str]:
    task = Task(
        dataset=[Sample("Work.", files={"given.txt": "from the sample"})],
        solver=[use_tools(python(**options)), generate()],
        sandbox=sandbox,
    )
    (log,) = await eval_async(
        task, model=get_model("scripted/model", codes=codes, memoize=False), log_dir=str(tmp_path)
    )
    assert "success" == log.status, log.error
    return [message.text for message in log.samples[0].messages if message.role == "tool"]


async def test_the_tool_has_a_namespace(tmp_path: Path) -> None:
    """It persists from call to call, with the sample's files; each failure is an answer, and the sample goes on."""
    codes = ("x = open('given.txt').read()", "x", "1/0", "while True: pass", "import os\nos._exit(3)", "x[0]")
    found = await texts(tmp_path, *codes, timeout=1.0)
    signs = (
        "no output",
        "from the sample",
        "ZeroDivisionError",
        "ran longer than 1 s",
        "as it was before",
        "f",
    )
    assert [] == [(sign, text) for sign, text in zip(signs, found, strict=True) if sign not in text]


async def test_a_policy_of_the_task(tmp_path: Path) -> None:
    """The policy comes from a file; an invalid one is refused before a sample runs."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("cell_timeout: 1\nenv: {WHO: me}\n")
    found = await texts(tmp_path, "import os\nos.environ['WHO']", sandbox=("cenote", str(policy)))
    assert ["'me'"] == found
    policy.write_text("no_such_field: 1")
    with pytest.raises(UsageError, match="no_such_field"):
        await CenoteSandboxEnvironment.sample_init("task", str(policy), {})


async def test_what_is_not_there() -> None:
    """Another user, and a sandbox that has ended."""
    made = await CenoteSandboxEnvironment.sample_init("task", None, {})
    environment = made["default"]
    assert (await environment.exec(["id", "-un"], user=USER)).success
    with pytest.raises(SandboxUserUnsupportedError):
        await environment.exec(["true"], user="root")
    assert 137 == (await environment.exec(["sh", "-c", "kill -9 $$"])).returncode
    await CenoteSandboxEnvironment.sample_cleanup("task", None, made, True)
    with pytest.raises(SandboxUnavailableError):
        await environment.exec(["true"])
