"""A runtime as a toolset and a workspace of pydantic-ai, by its own suite for workspaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from cenote import AsyncPythonRuntime, Function, PythonRuntime, SandboxPolicy

pytest.importorskip("pydantic_ai", reason="needs pydantic-ai: `make test-peers` has it")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.workspaces import WorkspaceOutputLimitError
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from cenote.adapters.pydantic_ai import CenoteToolset, CenoteWorkspace


class TestWorkspace(WorkspaceBackendSuite):
    """pydantic-ai's own suite for backends."""

    @pytest.fixture(scope="class")
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture(scope="class")
    def runtime(self) -> Iterator[PythonRuntime]:
        with PythonRuntime(name="work") as runtime:
            yield runtime

    @pytest.fixture
    def backend(self, runtime: PythonRuntime) -> CenoteWorkspace:
        return CenoteWorkspace(runtime)

    @pytest.fixture
    def has_real_posix_shell(self) -> bool:
        return True

    @pytest.fixture
    def attach_backend(self, runtime: PythonRuntime) -> Callable[[Any], CenoteWorkspace]:
        return lambda ref: CenoteWorkspace(runtime if ref.id == "work" else self.destroyed[ref.id].runtime)

    @pytest.fixture
    def fresh_backend(self) -> Iterator[Callable[[], CenoteWorkspace]]:
        made: list[CenoteWorkspace] = []

        def make() -> CenoteWorkspace:
            made.append(CenoteWorkspace(name=f"fresh {len(made)}"))
            return made[-1]

        yield make
        for each in made:
            each.runtime.core.close()

    @pytest.fixture
    def destroy_environment(self) -> Callable[[CenoteWorkspace], Awaitable[None]]:
        async def destroy(backend: CenoteWorkspace) -> None:
            self.destroyed[backend.ref.id] = backend
            await backend.close()

        return destroy

    destroyed: dict[str, CenoteWorkspace] = {}  # noqa: RUF012


@pytest.fixture
async def runtime() -> AsyncIterator[AsyncPythonRuntime]:
    async with AsyncPythonRuntime(sandbox=SandboxPolicy(memory="512MiB")) as runtime:
        yield runtime


def calls(*codes: str) -> FunctionModel:
    left = list(codes)

    def answer(messages: Any, info: Any) -> ModelResponse:
        if left:
            return ModelResponse(parts=[ToolCallPart("python", {"code": left.pop(0)})])
        return ModelResponse(parts=[TextPart("done")])

    return FunctionModel(answer)


async def outputs(toolset: Any, *codes: str) -> list[str]:
    """The outputs of each call as shown to the model."""
    done = await Agent(calls(*codes), toolsets=[toolset]).run("Work.")
    assert "done" == done.output
    parts = [part for message in done.all_messages() for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


async def test_the_namespace_stays(runtime: AsyncPythonRuntime) -> None:
    """It persists from call to call, and for the next agent; more failures than retries do not end a run."""

    def helper(x: int) -> int:
        raise ValueError(f"{x} is negative")

    await runtime.inject(Function(helper, host=True))
    codes = (
        "y = 5\n1/0",
        "helper(-1)",
        "while True: pass",
        "import os\nos._exit(3)",
        "b = bytearray(2**31)",
        "y",
    )
    told = await outputs(CenoteToolset(runtime, timeout=1), *codes)
    signs = ("ZeroDivisionError", "ValueError: -1 is negative", "ran longer than 1 s", "as it was before this code",
             "MemoryError", "5")  # fmt: skip
    assert [] == [(sign, text) for sign, text in zip(signs, told, strict=True) if sign not in text]
    assert ["5"] == await outputs(CenoteToolset(runtime), "y")


async def test_two_agents_over_one_runtime(runtime: AsyncPythonRuntime) -> None:
    """They run concurrently, each with its name on its steps."""
    names = ("one", "two")
    work = [
        outputs(CenoteToolset(await runtime.attach(name)), f"{name} = 1", f"{name} + 1") for name in names
    ]
    assert [["(no output)", "2"]] * 2 == await asyncio.gather(*work)
    assert set(names) == {step.author for step in runtime.state.steps}


async def test_a_runtime_of_its_own() -> None:
    """It persists from run to run, and ends with `close`."""
    toolset = CenoteToolset(name="own")
    assert ["(no output)"] == await outputs(toolset, "x = 1")
    assert ["1"] == await outputs(toolset, "x")
    await toolset.close()
    with pytest.raises(ValueError, match="closed"):
        await outputs(toolset, "x")


async def test_ends_of_commands(runtime: AsyncPythonRuntime) -> None:
    """A signal is an exit code; output beyond the limit is an error, never truncated output without notice."""
    workspace = CenoteWorkspace(runtime)
    assert 137 == (await workspace.run("kill -9 $$", shell=True)).exit_code
    with pytest.raises(WorkspaceOutputLimitError):
        await workspace.run("yes | head -c 30000000", shell=True)
