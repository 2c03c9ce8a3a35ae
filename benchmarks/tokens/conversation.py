"""A conversation, scripted once for all styles: what the user says, what is called and answered."""

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
    """One block of code with the sentence before it.

    replies: the code itself gives the final answer through `reply(...)`; where a style has that, no further
    turn is needed.
    """

    code: str
    thought: str = ""
    replies: bool = False


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What follows one message of the user.

    batches: tool calls in JSON styles; those of one batch do not depend on each other's results.
    cells: the same calls as code. answer: the final text, the same in all styles.
    """

    user: str
    batches: Sequence[Sequence[Call]] = ()
    cells: Sequence[Cell] = ()
    answer: str


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """Tools over data of their own.

    instructions: what the agent is told besides how to use tools; the same words in all styles.
    types: records that the tools take and return; JSON styles do without, as tool schemas have no results.
    arithmetic: names of tools that only JSON styles need, because code computes for itself.
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
