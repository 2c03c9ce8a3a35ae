"""Facts that a model states, and whether it had seen them: a real model would guess what an output omits.

A fact is a value that a tool has returned and that the model writes, in an answer or in a block of code. Values
from the user or the instructions are not facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.tokens.account import ModelCall
from benchmarks.tokens.conversation import Conversation

SHORTEST = 3
"""Characters. Shorter values, such as a single digit, occur somewhere in any prompt."""

_NUMBER = re.compile(r"(?<![\w.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w)")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """stated: number of facts. missing: those that the prompt of the same call did not contain, call by call."""

    stated: int = 0
    missing: tuple[str, ...] = ()

    def __add__(self, other: Facts) -> Facts:
        return Facts(stated=self.stated + other.stated, missing=self.missing + other.missing)

    @property
    def share_missing(self) -> float:
        return len(self.missing) / self.stated if self.stated else 0.0


@dataclass(frozen=True)
class _Seen:
    """A text prepared for search: its numbers and words, without case and punctuation."""

    text: str
    numbers: frozenset[float] = field(init=False)
    words: str = field(init=False)

    def __post_init__(self) -> None:
        found = _NUMBER.findall(self.text)
        object.__setattr__(self, "numbers", frozenset(float(one.replace(",", "")) for one in found))
        object.__setattr__(self, "words", f" {_plain(self.text)} ")

    def holds(self, value: str | float) -> bool:
        return f" {_plain(value)} " in self.words if isinstance(value, str) else value in self.numbers


def facts_of(conversation: Conversation, calls: Sequence[ModelCall]) -> Facts:
    """The facts of all calls of one conversation in one style."""
    known = _returned(conversation)
    given = conversation.toolkit().instructions
    found = Facts()
    for call in calls:
        users = [exchange.user for exchange in conversation.exchanges[: call.exchange + 1]]
        said, told, prompt = (
            _Seen(call.completion),
            _Seen("\n".join([given, *users])),
            _Seen("\n".join(call.prompt)),
        )
        stated = [value for value in known[call.exchange] if said.holds(value) and not told.holds(value)]
        missing = tuple(str(value) for value in stated if not prompt.holds(value))
        found += Facts(stated=len(stated), missing=missing)
    return found


def _returned(conversation: Conversation) -> list[list[str | float]]:
    """Values that tools have returned up to the end of each exchange."""
    toolkit = conversation.toolkit()
    tools = {tool.__name__: tool for tool in toolkit.tools}
    found: dict[str | float, None] = {}
    by_exchange = []
    for exchange in conversation.exchanges:
        for call in (call for batch in exchange.batches for call in batch):
            result = tools[call.tool](**call.arguments)
            found.update(dict.fromkeys(_values(json.loads(json.dumps(result)))))
        by_exchange.append(list(found))
    return by_exchange


def _values(result: object) -> Iterator[str | float]:
    """Texts and numbers in JSON that are long enough to be distinguished. Names of fields do not count."""
    if isinstance(result, dict):
        for item in result.values():
            yield from _values(item)
    elif isinstance(result, list):
        for item in result:
            yield from _values(item)
    elif isinstance(result, str) and len(_plain(result)) >= SHORTEST:
        yield result
    elif isinstance(result, (int, float)) and not isinstance(result, bool) and len(f"{result:g}") >= SHORTEST:
        yield abs(float(result))


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text)).lower()
