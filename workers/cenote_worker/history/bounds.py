"""Limits on what is kept of a step's results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from cenote_security.errors import RejectedError
from cenote_worker.execution.results import ErrorInfo, MimeBundle
from cenote_worker.execution.trace import untold
from cenote_worker.history.events import (
    ArtifactDeclared,
    EnvironmentUsed,
    Event,
    InitialNames,
    RanTest,
    SuiteOutcome,
)
from cenote_worker.history.step import StepRecord

MAX_TEXT: Final = 64 * 1024
"""Characters of each text: what a model is shown of a cell is a tenth of it."""

MAX_OUTPUTS: Final = 1024 * 1024
"""Bytes of the displayed objects of one step: some plots."""

MAX_TRACES: Final = 256 * 2**20
"""Bytes of the traces of all steps, which are never shed: tens of thousands of steps of a busy notebook."""

SMALL_TRACE: Final = 16 * 1024
"""Bytes of a trace that is kept even then: some 50 locations."""

MAX_TOLD: Final = 256 * 2**20
"""Characters of all code, declarations and results of tests: they are never shed either."""

SMALL: Final = 4 * 1024
"""Characters of a cell that is accepted even then: any step takes as much."""

MAX_FILE: Final = 4 * 2**20
"""Bytes of one file that a client wrote and whose content a history keeps: code, small tables. One event at most."""

MAX_FILES: Final = 64 * 2**20
"""Bytes of all of them, each content once. They are never shed: patches would then depend on later steps."""

MAX_PUT_IN: Final = 4 * 2**20
"""Bytes of an injection that a history keeps: the data of agents' tasks, small tables. One event at most."""

MAX_ALL_PUT_IN: Final = 64 * 2**20
"""Bytes of all of them, as with MAX_FILES."""

MAX_BEGUN_FILES: Final = 200
"""Files that clients wrote before the first step: each further one writes an event that lists all of them."""

MAX_BEGINNINGS: Final = 64 * 2**20
"""Characters of all events about the state before the first step: each change there writes all of it again."""

MAX_CAUSE: Final = 1_000
"""Characters of the cause that a client gives for a cell."""

MAX_NAMES: Final = 1_000
"""Names of one injection."""


def bounded(record: StepRecord) -> StepRecord:
    """The record, with results that fit."""
    if record.size <= MAX_TEXT and len(record.names) <= MAX_NAMES:
        return record  # the common case, at the cost of a few additions
    return replace(
        record,
        names=record.names[:MAX_NAMES],
        stdout=_cut(record.stdout),
        stderr=_cut(record.stderr),
        value=None if record.value is None else _cut(record.value),
        reply=None if record.reply is None else _cut(record.reply),
        error=None if record.error is None else _cut_error(record.error),
        outputs=_fitting(record.outputs),
    )


def _cut(text: str) -> str:
    """The beginning and the end, as with the output of a cell."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _cut_error(error: ErrorInfo) -> ErrorInfo:
    return replace(error, message=_cut(error.message), traceback=_cut(error.traceback))


def _fitting(bundles: Iterable[MimeBundle]) -> tuple[MimeBundle, ...]:
    """The first displayed objects, as many as fit."""
    kept: list[MimeBundle] = []
    room = MAX_OUTPUTS
    for bundle in bundles:
        room -= sum(map(len, bundle.values()))
        if room < 0:
            break
        kept.append(bundle)
    return tuple(kept)


def check_room(size: int, room: int) -> None:
    """Checks that so many more characters can be kept for ever. Raises RejectedError."""
    if size > max(room, SMALL):
        raise RejectedError(
            f"the history of this runtime has the {MAX_TOLD >> 20} MiB of code and results of tests that it may "
            f"have; go on in a new runtime, and bring data by inject or as files, not in code"
        )


def check_beginnings(size: int, room: int) -> None:
    """Checks that so many more characters about the state before the first step have room. Raises RejectedError."""
    if size > room:
        raise RejectedError(
            "too much was put in, written or deleted one by one before the first cell of this runtime; run a cell, "
            "and go on behind it, or put in several values at once"
        )


def beginning(begun: InitialNames) -> int:
    """Characters of an event about the state before the first step."""
    values = sum(len(value.content) + sum(map(len, value.names)) for value in begun.values)
    return sum(map(len, begun.names)) + _lengths(begun.files) + values


def told(event: Event) -> int:
    """Characters of an event that are never shed, without its trace."""
    if isinstance(event, StepRecord):
        return len(event.code) + sum(map(len, event.names))
    if isinstance(event, ArtifactDeclared):
        return len(event.name) + sum(map(len, event.depends_on))
    if isinstance(event, EnvironmentUsed):
        return sum(map(len, event.packages))
    if isinstance(event, SuiteOutcome):
        return sum(map(_told_of, event.tests)) + _lengths(event.units)
    return 0


def _told_of(test: RanTest) -> int:
    return len(test.name) + len(test.message) + len(test.traceback) + _lengths(test.used)


def _lengths(versions: Mapping[str, str]) -> int:
    return sum(len(key) + len(version) for key, version in versions.items())


def with_room(record: StepRecord, room: int) -> StepRecord:
    """The record. A trace that is neither small nor fits is replaced by an untold one. room: bytes."""
    if record.trace is None or record.trace.size <= max(room, SMALL_TRACE):
        return record
    return replace(record, trace=untold(record.trace))
