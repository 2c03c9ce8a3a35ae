"""Why a step failed, as data: the exception, its place, and the origins of the values that it met."""

from __future__ import annotations

import builtins
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cenote.harness.planning.state_contents import reads_anything
from cenote.harness.record.code_names import bound_names, mentioned_names
from cenote.harness.record.last_writer import last_writer
from cenote_worker.execution.results import ErrorInfo, Span
from cenote_worker.execution.trace import Location, key_of, kind_of, name
from cenote_worker.history.step import StepRecord
from cenote_worker.jail.cells.ipython_syntax import MAGIC

MAX_FOLLOWED: Final = 100
"""Reads of values that one diagnosis follows, each along the line: a step may say that it read thousands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a value came from. step: the last one that wrote it, 0 if no watched one did.

    span: the statement in that step that binds the name, else the one that may have changed its object; None where
    the text of the step shows neither.
    """

    name: str
    step: int
    author: str = ""
    code: str = ""
    span: Span | None = None
    missing: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """A failing step. source: the failing text, when it is known where it is.

    origins: of the names in the failing expression, then of all else that the step read, and what these were made
    from, nearest first, as far as MAX_FOLLOWED reads. complete: False when the step may have read more than is known.
    """

    step: int
    error: ErrorInfo
    source: str
    origins: tuple[Origin, ...]
    complete: bool

    @property
    def span(self) -> Span | None:
        return self.error.span


def diagnose(records: Sequence[StepRecord], number: int, *, depth: int = 3) -> Diagnosis | None:
    """Of a step of this line; None if it has not failed. depth: how far back values are followed.

    records: the line from the start, at least up to the step.
    """
    index = next((at for at, record in enumerate(records) if record.number == number), None)
    if index is None or records[index].error is None:
        return None
    record = records[index]
    error = record.error
    assert error is not None
    source = _text(record.code, error.span)
    return Diagnosis(
        step=number,
        error=error,
        source=source,
        origins=_origins(records[:index], record, source, depth),
        complete=not reads_anything(record.trace),
    )


def _origins(before: Sequence[StepRecord], record: StepRecord, source: str, depth: int) -> tuple[Origin, ...]:
    first = dict.fromkeys([*sorted(mentioned_names(source)), *_reads(record)])
    waiting = deque((one, len(before), 0) for one in first)
    found: dict[tuple[str, int], Origin] = {}
    left = MAX_FOLLOWED
    while waiting and (left := left - 1) >= 0:
        variable, end, far = waiting.popleft()
        at = _last_write(before[:end], name(variable))
        writer = before[at] if at is not None else None
        key = (variable, writer.number if writer is not None else 0)
        if key in found or (writer is None and _is_of_no_step(variable, record)):
            continue
        found[key] = _origin(variable, writer)
        if at is not None and writer is not None and far < depth:
            waiting += [(one, at, far + 1) for one in _reads(writer)]
    return tuple(found.values())


def _reads(record: StepRecord) -> list[str]:
    """Names that the step read, at most MAX_FOLLOWED."""
    reads = record.trace.reads if record.trace is not None else ()
    return sorted(key_of(one) for one in reads if kind_of(one) == "name")[:MAX_FOLLOWED]


def _is_of_no_step(variable: str, record: StepRecord) -> bool:
    return _looks_built_in(variable, record) or _is_its_own(variable, record)


def _looks_built_in(variable: str, record: StepRecord) -> bool:
    """Whether no step wrote it and it was found all the same: then it is not a variable of the user's."""
    if hasattr(builtins, variable) or variable == MAGIC:
        return True
    return record.trace is not None and record.trace.reads.get(name(variable), "there") != ""


def _is_its_own(variable: str, record: StepRecord) -> bool:
    """What the step binds counts as read, too. That it was not there before explains nothing but a NameError."""
    missed = record.error is not None and record.error.type in ("NameError", "UnboundLocalError")
    return not missed and variable in bound_names(record.code)


def _last_write(records: Sequence[StepRecord], location: Location) -> int | None:
    """The index of the step."""
    for at in range(len(records) - 1, -1, -1):
        trace = records[at].trace
        if trace is not None and location in trace.writes:
            return at
    return None


def _origin(variable: str, writer: StepRecord | None) -> Origin:
    if writer is None:
        return Origin(name=variable, step=0, missing=True)
    span, code = last_writer(writer.code, variable)
    return Origin(
        name=variable,
        step=writer.number,
        author=writer.author,
        code=code,
        span=span,
        missing=bool(writer.trace and name(variable) in writer.trace.deleted),
    )


def _text(code: str, span: Span | None) -> str:
    if span is None:
        return ""
    lines = code.split("\n")[span.line - 1 : span.end_line]
    if not lines:
        return ""
    lines[-1] = lines[-1][: span.end_column]
    lines[0] = lines[0][span.column :]
    return "\n".join(lines)
