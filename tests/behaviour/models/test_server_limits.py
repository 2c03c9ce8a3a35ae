"""The context window, as servers report it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakes.openai_server import OpenAIServer, answer

from cenote.agent import CaveAgent
from cenote.agent.vocabulary.events import EventType
from cenote.models import Message, OpenAIServerModel, ScriptedModel
from cenote.models.base import ModelLimits, pages, read_limits

LLAMA_CPP = {
    "default_generation_settings": {"n_ctx": 4096, "params": {}},
    "total_slots": 1,
    "model_path": "m.gguf",
}
VLLM = {"object": "list", "data": [{"id": "qwen", "object": "model", "max_model_len": 32768}]}
OPENROUTER = {
    "data": [
        {"id": "other", "context_length": 1000},
        {
            "id": "qwen",
            "context_length": 262144,
            "top_provider": {"context_length": 131072, "max_completion_tokens": 8192},
        },
    ]
}
LM_STUDIO = {
    "data": [{"id": "qwen", "max_context_length": 131072, "loaded_context_length": 4096, "state": "loaded"}]
}
OLLAMA = {"models": [{"name": "qwen:latest", "model": "qwen:latest", "context_length": 4096}]}


@pytest.mark.parametrize(
    ("expected", "page"),
    [
        (ModelLimits(4096), LLAMA_CPP),
        (ModelLimits(32768), VLLM),
        (ModelLimits(131072, 8192), OPENROUTER),
        (ModelLimits(4096), LM_STUDIO),
        (ModelLimits(4096), OLLAMA),
        (ModelLimits(), {"data": [{"id": "qwen", "meta": {"n_ctx_train": 8192}}]}),
        (ModelLimits(), {"data": [{"id": "qwen", "max_model_len": "32768"}, {"id": "b"}]}),
        (ModelLimits(), {"data": [{"id": "qwen", "max_model_len": True}]}),
        (ModelLimits(), {"data": [{"id": "qwen", "max_model_len": -1}]}),
        (ModelLimits(), {"data": [{"id": "a", "max_model_len": 10}, {"id": "b", "max_model_len": 20}]}),
        (ModelLimits(), {"data": "qwen"}),
        (ModelLimits(), ["qwen"]),
        (ModelLimits(), None),
    ],
)
def test_a_page_is_read(expected: ModelLimits, page: object) -> None:
    """Among several models the one with the name; a value that is not a number of tokens counts as none."""
    assert expected == read_limits(page, "qwen")


def test_pages_beside_the_api_are_at_its_root() -> None:
    """Also below a path, and without `/v1`."""
    assert "http://h/a/props" == pages("http://h/a/v1")[1]
    assert ("http://h:1/models", "http://h:1/props") == pages("http://h:1")[:2]


@pytest.mark.parametrize(
    ("path", "page", "window"),
    [("/v1/models", VLLM, 32768), ("/props", LLAMA_CPP, 4096), ("/api/v0/models", LM_STUDIO, 4096),
     ("/api/ps", OLLAMA, 4096), ("/other", {}, None), ("/props", b"<html>", None)],
)  # fmt: skip
async def test_a_server_is_asked_once(path: str, page: Any, window: int | None) -> None:
    """One page after the other, until one of them has it."""
    with OpenAIServer([], {path: page}) as server:
        model = OpenAIServerModel("qwen", base_url=server.url, trust_env=False)
        assert window == (await model.limits()).context_window
        asked = list(server.pages_asked)
        assert window == (await model.limits()).context_window
        assert asked == server.pages_asked


async def test_a_server_that_is_not_there_says_nothing() -> None:
    """Without an error: the following call has one, with the address."""
    model = OpenAIServerModel("qwen", base_url="http://127.0.0.1:9/v1", trust_env=False)
    assert ModelLimits() == await model.limits()


async def test_openai_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(*_: object) -> None:
        raise AssertionError("a page was asked for")

    monkeypatch.setattr(OpenAIServerModel, "_page", ask)
    assert ModelLimits() == await OpenAIServerModel("gpt-5", api_key="k").limits()


@pytest.mark.parametrize(("setting", "compacts"), [(None, True), (128_000, False)])
async def test_an_agent_keeps_to_the_window_that_the_server_has(setting: int | None, compacts: bool) -> None:
    """Unless another one was given, and then no request is made."""
    said = [Message.user("word " * 3000), Message.assistant("word " * 3000)]
    with OpenAIServer([answer("done")] * 3, {"/props": LLAMA_CPP}) as server:
        model = OpenAIServerModel("qwen", base_url=server.url, trust_env=False)
        agent = CaveAgent(model, messages=said, context_window=setting)
        events = [event.type async for event in agent.stream_events("Go.")]
        assert compacts == (EventType.COMPACTING in events)
        assert compacts == bool(server.pages_asked)


async def test_a_model_of_ones_own_need_not_know() -> None:
    """A class without `limits` is not asked."""

    class Bare:
        def __init__(self) -> None:
            self.inner = ScriptedModel(["done"])

        def stream(self, messages: Any) -> Any:
            return self.inner.stream(messages)

    assert "done" == (await CaveAgent(Bare()).run("Go.")).content  # type: ignore[arg-type]
