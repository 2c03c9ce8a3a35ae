"""Cenote: a real agent over a real runtime, with tools as host functions and a scripted model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from benchmarks.tokens.account import ModelCall
from benchmarks.tokens.code_script import check_answer, turns, without_reply
from benchmarks.tokens.conversation import Conversation
from benchmarks.tokens.recorded_tools import RecordedTools
from benchmarks.tokens.style import Style, Transcript
from cenote.agent import CaveAgent
from cenote.models import ScriptedModel
from cenote.runtime import Function, PythonRuntime


@dataclass(frozen=True, kw_only=True)
class CenoteOptions:
    """reply: the model answers from a block if the outcome is certain. delta: `namespace_delta` of the agent.
    full: with the full prompt."""

    reply: bool = True
    delta: bool = False
    full: bool = False


def play(conversation: Conversation, options: CenoteOptions) -> Transcript:
    toolkit = conversation.toolkit()
    tools = RecordedTools(toolkit.tools)
    script = [
        (place, text if options.reply else without_reply(text))
        for place, exchange in enumerate(conversation.exchanges)
        for text in turns(exchange, reply=options.reply)
    ]
    model = ScriptedModel([text for _, text in script])
    with PythonRuntime(functions=[Function(tool, host=True) for tool in tools.tools]) as runtime:
        agent = CaveAgent(
            model,
            runtime,
            instructions=toolkit.instructions,
            namespace_delta=options.delta,
            prompt="full" if options.full else "lean",
        )
        for exchange in conversation.exchanges:
            check_answer(conversation, exchange, agent.run_sync(exchange.user).content)
    model_calls = [
        ModelCall(
            prompt=tuple(f"{message.role}\n{message.content}" for message in prompt),
            completion=text,
            exchange=place,
        )
        for prompt, (place, text) in zip(model.prompts, script, strict=True)
    ]
    return Transcript(model_calls=model_calls, tool_calls=tools.calls)


CENOTE_STYLES = (
    Style(name="cenote", title="Cenote", play=partial(play, options=CenoteOptions())),
    Style(
        name="cenote full",
        title='Cenote with whole docstrings and types of all fields (prompt="full")',
        play=partial(play, options=CenoteOptions(full=True)),
    ),
    Style(
        name="cenote delta",
        title="Cenote with a line on the namespace after each block (namespace_delta)",
        play=partial(play, options=CenoteOptions(delta=True)),
    ),
    Style(
        name="cenote no reply",
        title="Cenote with each answer in a turn of its own, never through reply()",
        play=partial(play, options=CenoteOptions(reply=False)),
    ),
)
