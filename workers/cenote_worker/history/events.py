"""What a history consists of. It is read from its beginning, and only added to."""

from __future__ import annotations

from dataclasses import dataclass

from cenote_worker.history.step import START, StepRecord
from cenote_worker.results import VariableInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The live state is that after another step now. reason: such as `rollback`, `reset`, or why a jail ended."""

    head: int = START
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What the state before the first step holds now: each fresh jail begins with these names."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the namespace said of its variables in the state after a step.

    variables: those of which something else was said in an earlier state of the same line, or nothing. gone: names of
    those that were there then.
    """

    step: int
    variables: tuple[VariableInfo, ...] = ()
    gone: tuple[str, ...] = ()


Event = StepRecord | Moved | Begun | Described
