"""The script of a conversation for a model that answers with code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.tokens.conversation import Cell, Conversation, Exchange

SHOW_OR_REPLY = re.compile(r"\b(show|reply)\(")


class ScriptBrokenError(Exception):
    """A conversation did not follow its script, so its tokens would mean nothing."""


def turns(exchange: Exchange, *, reply: bool) -> Iterator[str]:
    """The model's texts: blocks of code, then the answer, unless the last block gives it already.

    reply: whether the style has `reply(...)`.
    """
    for cell in exchange.cells:
        yield _block(cell)
    if not (reply and exchange.cells and exchange.cells[-1].replies):
        yield exchange.answer


def plain(text: str) -> str:
    """The same text for a style without `show` and `reply`: its model prints."""
    return SHOW_OR_REPLY.sub("print(", text)


def without_reply(text: str) -> str:
    """The same text from a model that reads the outcome before it answers."""
    return re.sub(r"\breply\(", "print(", text)


def check_answer(conversation: Conversation, exchange: Exchange, answer: str) -> None:
    """Raises ScriptBrokenError unless the agent ended with the scripted answer."""
    if answer != exchange.answer:
        raise ScriptBrokenError(f"{conversation.name}: {exchange.answer!r} was scripted, {answer!r} came")


def _block(cell: Cell) -> str:
    fenced = f"```python\n{cell.code}\n```"
    return f"{cell.thought}\n{fenced}" if cell.thought else fenced
