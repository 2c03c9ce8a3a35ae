"""JSON tool calling: schemas beside the messages, one message per result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.tokens.account import ModelCall
from benchmarks.tokens.conversation import Call, Conversation, Exchange, Toolkit
from benchmarks.tokens.recorded_tools import RecordedTools
from benchmarks.tokens.style import Style, Transcript
from benchmarks.tokens.tool_schemas import tool_schemas


@dataclass(frozen=True, kw_only=True)
class JsonOptions:
    """parallel: independent calls go out in one turn. lean: trimmed schemas, compact results, no tool for sums."""

    parallel: bool
    lean: bool


def play(conversation: Conversation, options: JsonOptions) -> Transcript:
    """Runs the calls of the script and records every request."""
    toolkit = conversation.toolkit()
    tools = RecordedTools(toolkit.tools)
    messages = [f"system\n{toolkit.instructions}"]
    model_calls: list[ModelCall] = []
    schemas = tool_schemas(toolkit.tools, trimmed=options.lean)

    def ask(place: int, answer: str) -> None:
        model_calls.append(ModelCall(prompt=(schemas, *messages), completion=answer, exchange=place))
        messages.append(f"assistant\n{answer}")

    for place, exchange in enumerate(conversation.exchanges):
        messages.append(f"user\n{exchange.user}")
        for turn in _turns(exchange, options, toolkit.arithmetic):
            ask(place, _written(turn))
            messages += [f"tool\n{_result(tools, call, options.lean)}" for call in turn]
        ask(place, exchange.answer)
    return Transcript(model_calls=model_calls, tool_calls=_comparable(tools.calls, toolkit))


def _turns(exchange: Exchange, options: JsonOptions, arithmetic: frozenset[str]) -> Iterator[Sequence[Call]]:
    for batch in exchange.batches:
        calls = [call for call in batch if not (options.lean and call.tool in arithmetic)]
        if calls:
            yield from [calls] if options.parallel else [[call] for call in calls]


def _written(calls: Sequence[Call]) -> str:
    """Calls as the model writes them, without ids, which the server makes."""
    return "\n".join(_compact({"name": call.tool, "arguments": call.arguments}) for call in calls)


def _result(tools: RecordedTools, call: Call, lean: bool) -> str:
    try:
        value = tools.by_name[call.tool](**call.arguments)
    except ValueError as error:
        value = {"error": str(error)}
    if isinstance(value, str):
        return value
    return _compact(without_empty(value)) if lean else json.dumps(value)


def without_empty(value: object) -> object:
    """A record without its empty fields: None and empty lists mean the same as their absence."""
    if isinstance(value, dict):
        return {key: without_empty(item) for key, item in value.items() if item is not None and item != []}
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    return value


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _comparable(calls: Sequence[str], toolkit: Toolkit) -> list[str]:
    return [call for call in calls if call.partition(" ")[0] not in toolkit.arithmetic]


JSON_STYLES = (
    Style(
        name="json",
        title="JSON calls, one a turn",
        play=partial(play, options=JsonOptions(parallel=False, lean=False)),
    ),
    Style(
        name="json parallel",
        title="JSON calls, independent ones in parallel",
        play=partial(play, options=JsonOptions(parallel=True, lean=False)),
    ),
    Style(
        name="json lean",
        title="JSON calls in parallel, trimmed schemas, compact results, sums without a tool",
        play=partial(play, options=JsonOptions(parallel=True, lean=True)),
    ),
)
