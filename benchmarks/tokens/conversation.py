"""A conversation, scripted once for all styles: the user's messages, the calls and the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Call:
    """One tool call as JSON styles write it."""

    tool: str
    arguments: dict[str, object]


def call(tool: str, **arguments: object) -> Call:
    return Call(tool, arguments)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One block of code, and the sentence before it."""

    code: str
    thought: str = ""
    replies: bool = False


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One message of the user and what follows.

    batches: tool calls in JSON styles; those of one batch do not depend on each other's results.
    cells: the same calls as code. answer: the final text, the same in all styles.
    """

    user: str
    batches: Sequence[Sequence[Call]] = ()
    cells: Sequence[Cell] = ()
    answer: str


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """Tools with their own data.

    instructions: the agent's instructions besides how to use tools; the same text in all styles.
    types: records that the tools take and return; JSON styles omit them, since tool schemas have no results.
    arithmetic: names of tools that only JSON styles need, because code can compute.
    """

    instructions: str
    tools: Sequence[Callable[..., object]]
    types: Sequence[type] = ()
    arithmetic: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """toolkit: makes the tools over fresh data."""

    name: str
    toolkit: Callable[[], Toolkit]
    exchanges: Sequence[Exchange]
