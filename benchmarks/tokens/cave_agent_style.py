"""The cave-agent library with its stock prompts, the same blocks of code and the same tools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from importlib import import_module

from benchmarks.tokens.account import ModelCall
from benchmarks.tokens.code_script import check_answer, plain, turns
from benchmarks.tokens.conversation import Conversation
from benchmarks.tokens.recorded_tools import RecordedTools
from benchmarks.tokens.style import Style, Transcript

LIBRARY = "cave_agent"
KEEP_ALL = 1000  # its default keeps 20 messages, which would drop part of the longest conversation


def play(conversation: Conversation) -> Transcript:
    """Its agent calls `call` of any model, so a scripted one needs no base class."""
    library = import_module(LIBRARY)
    toolkit = conversation.toolkit()
    tools = RecordedTools(toolkit.tools)
    model = _Script(library.ModelResponse, _texts(conversation))
    runtime = library.IPythonRuntime(
        functions=[library.Function(tool) for tool in tools.tools],
        types=[library.Type(kind) for kind in toolkit.types],
    )
    agent = library.CaveAgent(
        model,
        runtime,
        instructions=toolkit.instructions,
        max_history=KEEP_ALL,
        log_level=min(library.LogLevel, key=lambda level: level.value),
    )

    async def converse() -> None:
        for exchange in conversation.exchanges:
            response = await agent.run(exchange.user)
            check_answer(conversation, exchange, response.content)

    asyncio.run(converse())
    return Transcript(model_calls=model.calls, tool_calls=tools.calls)


def _texts(conversation: Conversation) -> Iterator[tuple[int, str]]:
    for place, exchange in enumerate(conversation.exchanges):
        yield from ((place, plain(text)) for text in turns(exchange, reply=False))


class _Script:
    """A model that answers with given texts and records its prompts."""

    def __init__(self, response: type, texts: Iterator[tuple[int, str]]) -> None:
        self._response = response
        self._texts = texts
        self.calls: list[ModelCall] = []

    async def call(self, messages: Sequence[dict[str, str]]) -> object:
        place, text = next(self._texts)
        prompt = tuple(f"{message['role']}\n{message['content']}" for message in messages)
        self.calls.append(ModelCall(prompt=prompt, completion=text, exchange=place))
        return self._response(content=text)


CAVE_AGENT_STYLE = Style(
    name="cave-agent", title="cave-agent with its stock prompts", play=play, library=LIBRARY
)
