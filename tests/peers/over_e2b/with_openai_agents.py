"""The OpenAI Agents SDK's `E2BSandboxClient`: a session through its interface, and a scripted agent."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from agents import ModelResponse, Runner, Usage
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.models.interface import Model
from agents.run_config import RunConfig, SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.entries import Dir, File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Scripted(Model):
    """Answers in the order given: the name and arguments of a tool, or a last text."""

    def __init__(self, *answers: tuple[str, dict[str, Any]] | str) -> None:
        self.answers = list(answers)
        self.seen: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        self.seen.append(input)
        answer = self.answers.pop(0)
        item: Any
        if isinstance(answer, str):
            text = ResponseOutputText(type="output_text", text=answer, annotations=[])
            item = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
        else:
            name, arguments = answer
            item = ResponseFunctionToolCall(
                type="function_call", call_id=f"c{len(self.seen)}", name=name, arguments=json.dumps(arguments)
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def options(**more: Any) -> E2BSandboxClientOptions:
    return E2BSandboxClientOptions(sandbox_type="e2b_code_interpreter", timeout=300, **more)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session() -> AsyncIterator[Any]:
    manifest = Manifest(
        entries={
            "notes.md": File(content=b"# notes\n"),
            "data": Dir(children={"paid.csv": File(content=b"city,paid\nOslo,30\n")}),
        }
    )
    client = E2BSandboxClient()
    made = await client.create(manifest=manifest, options=options(envs={"GIVEN": "by options"}))
    async with made:
        yield made
    await client.delete(made)


async def test_the_manifest_is_laid_out_in_the_workspace(session: Any) -> None:
    found = await session.exec("cat notes.md data/paid.csv; pwd")
    assert (found.exit_code, found.stdout) == (0, b"# notes\ncity,paid\nOslo,30\n/home/user\n")
    assert (await session.exec("echo $GIVEN")).stdout == b"by options\n"


async def test_a_command_that_fails_says_so(session: Any) -> None:
    found = await session.exec("echo out; echo err >&2; exit 3")
    assert (found.exit_code, found.stdout, found.stderr) == (3, b"out\n", b"err\n")


async def test_a_command_that_takes_too_long_is_ended(session: Any) -> None:
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 60", timeout=1)
    assert b"sleep 60" not in (await session.exec("ps ax")).stdout


async def test_files_are_written_listed_read_and_removed(session: Any) -> None:
    data = bytes(range(256)) * 1000
    await session.mkdir(Path("made/deep"), parents=True)
    await session.write(Path("made/deep/a.bin"), io.BytesIO(data))
    assert (await session.read(Path("made/deep/a.bin"))).read() == data
    listed = await session.ls(Path("made/deep"))
    assert [Path(entry.path).name for entry in listed] == ["a.bin"]
    await session.rm(Path("made"), recursive=True)
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("made/deep/a.bin"))


async def test_a_terminal_is_typed_into(session: Any) -> None:
    started = await session.pty_exec_start("python3", "-q", shell=False, tty=True, yield_time_s=2)
    assert started.process_id is not None
    found = await session.pty_write_stdin(
        session_id=started.process_id, chars="print(6 * 7)\n", yield_time_s=2
    )
    assert b"42" in found.output
    await session.pty_terminate_all()


async def test_a_long_program_is_waited_for(session: Any) -> None:
    started = await session.pty_exec_start("echo one; sleep 1; echo two", yield_time_s=10)
    assert (started.exit_code, started.output) == (0, b"one\ntwo\n")


async def test_the_workspace_leaves_and_comes_to_another_sandbox(session: Any) -> None:
    await session.write(Path("carried.txt"), io.BytesIO(b"carried"))
    archive = await session.persist_workspace()
    async with await E2BSandboxClient().create(options=options()) as other:
        await other.hydrate_workspace(archive)
        assert (await other.read(Path("carried.txt"))).read() == b"carried"


async def test_a_session_is_resumed_by_its_state() -> None:
    client = E2BSandboxClient()
    first = await client.create(options=options())
    await first.start()
    await first.write(Path("here.txt"), io.BytesIO(b"still"))
    state = client.deserialize_session_state(client.serialize_session_state(first.state))
    async with await client.resume(state) as again:
        assert again.state.sandbox_id == first.state.sandbox_id
        assert (await again.read(Path("here.txt"))).read() == b"still"


async def test_a_snapshot_of_the_sandbox_is_its_workspace() -> None:
    client = E2BSandboxClient()
    async with await client.create(options=options(workspace_persistence="snapshot")) as made:
        await made.write(Path("kept.txt"), io.BytesIO(b"kept"))
        kept = await made.persist_workspace()
        await made.rm(Path("kept.txt"))
        await made.hydrate_workspace(kept)
        assert (await made.read(Path("kept.txt"))).read() == b"kept"


async def test_an_agent_works_in_a_sandbox() -> None:
    model = Scripted(
        ("exec_command", {"cmd": "wc -l < notes.md > count && cat count"}),
        "one line",
    )
    manifest = Manifest(entries={"notes.md": File(content=b"# notes\n")})
    agent = SandboxAgent(name="counter", model=model, instructions="Count.", default_manifest=manifest)
    sandbox = SandboxRunConfig(client=E2BSandboxClient(), options=options())
    result = await Runner.run(
        agent, "How many?", run_config=RunConfig(sandbox=sandbox, tracing_disabled=True)
    )
    assert result.final_output == "one line"
    (output,) = [item for item in model.seen[-1] if item.get("type") == "function_call_output"]
    assert "\n1" in str(output["output"])
