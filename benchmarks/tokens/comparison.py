"""All conversations in all styles, checked to have made the same tool calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.tokens.account import Cost, Count, add_up
from benchmarks.tokens.code_script import ScriptBrokenError
from benchmarks.tokens.conversation import Conversation
from benchmarks.tokens.facts import Facts, facts_of
from benchmarks.tokens.style import Style, Transcript


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """costs, facts: by names of conversation and style."""

    conversations: Sequence[str]
    styles: Sequence[Style]
    costs: Mapping[tuple[str, str], Cost]
    facts: Mapping[tuple[str, str], Facts]

    def total(self, style: str) -> Cost:
        """Cost of a style over all conversations."""
        return sum((self.costs[name, style] for name in self.conversations), Cost())

    def stated(self, style: str) -> Facts:
        """The facts that a model states in a style, over all conversations."""
        return sum((self.facts[name, style] for name in self.conversations), Facts())


def compare(
    conversations: Iterable[Conversation],
    styles: Sequence[Style],
    count: Count,
    progress: Callable[[str, str], None],
) -> Comparison:
    """Plays and counts everything. Raises ScriptBrokenError if two styles called different tools."""
    costs: dict[tuple[str, str], Cost] = {}
    facts: dict[tuple[str, str], Facts] = {}
    names = []
    for conversation in conversations:
        names.append(conversation.name)
        transcripts = {}
        for style in styles:
            progress(conversation.name, style.name)
            transcripts[style.name] = style.play(conversation)
            calls = transcripts[style.name].model_calls
            costs[conversation.name, style.name] = add_up(calls, count)
            facts[conversation.name, style.name] = facts_of(conversation, calls)
        check_same_calls(conversation.name, transcripts)
    return Comparison(conversations=names, styles=styles, costs=costs, facts=facts)


def check_same_calls(conversation: str, transcripts: Mapping[str, Transcript]) -> None:
    """The order may differ; calls and arguments may not."""
    sorted_calls = {style: sorted(transcript.tool_calls) for style, transcript in transcripts.items()}
    first, *others = sorted_calls
    for other in others:
        if sorted_calls[other] != sorted_calls[first]:
            difference = sorted(set(sorted_calls[other]) ^ set(sorted_calls[first]))
            raise ScriptBrokenError(f"{conversation}: {first} and {other} called differently: {difference}")
