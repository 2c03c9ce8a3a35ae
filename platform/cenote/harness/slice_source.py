"""The program of a slice: one text, in which each step has a heading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from cenote.harness.slice_syntax import Statement
from cenote_worker.history.step import StepRecord
from cenote_worker.in_jail.rewrite import to_python
from cenote_worker.results import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedStatement:
    """Part of a step. span: in the step's code; None for all of it, and for a change without code."""

    step: int
    text: str
    span: Span | None = None

    @classmethod
    def of(cls, record: StepRecord, statement: Statement | None) -> Self:
        if statement is None:
            return cls(step=record.number, text=_text(record))
        return cls(step=record.number, text=statement.text, span=statement.span)


def with_heading(record: StepRecord, statements: Sequence[Statement] | None) -> str:
    """None: all of the step. Such texts, with an empty line between, are the program."""
    if record.kind not in ("cell", "deletion"):
        return _text(record)
    by = f", {record.author}" if record.author else ""
    text = _whole(record) if statements is None else "\n".join(each.text for each in statements)
    return f"# step {record.number}{by}\n{text}"


def _whole(record: StepRecord) -> str:
    """A magic that stands for the rest of its cell is written as a call, lest it stand for the steps behind it."""
    text = _text(record)
    return to_python(text).rstrip() if "%%" in text else text


def _text(record: StepRecord) -> str:
    if record.kind == "cell":
        return record.code
    who = record.author or "the owner"
    names = ", ".join(record.names)
    match record.kind:
        case "injection":
            return f"# step {record.number}: {names}, put in by {who}"
        case "deletion":
            return f"del {names}"
        case "upload":
            return f"# step {record.number}: {names}, a file that {who} uploaded"
        case "removal":
            return f"# step {record.number}: {names}, a file that {who} removed"
    if record.kind == "process":
        shown = record.code.splitlines()[0][:100]
        return f"# a process beside the namespace: {shown}"
    return f"# whatever ran up to step {record.number}: nothing is recorded of it"
