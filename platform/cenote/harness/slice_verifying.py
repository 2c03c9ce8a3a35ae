"""Whether the program of a slice gives the value again: it is run by itself, and what it gives is compared."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from cenote.harness.equality import same
from cenote.harness.past import Past
from cenote.harness.slice_line import DRAWN
from cenote.harness.slices import Slice, slice_of
from cenote.harness.symbols import location_of
from cenote_security.errors import MalformedValueError, RehearsalError, RejectedError, UnsafeValueError
from cenote_worker.history.step import START, StepRecord
from cenote_worker.trace import TREE, Location, file, key_of, kind_of

SliceOutcome = Literal["verified", "different", "unverifiable"]

PATIENCE: Final = 30.0
SLOWER: Final = 10.0
"""Seconds that the program may take, and how many times as long as its steps took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came of running the program of a slice in a fresh runtime.

    outcome: verified: it gives the value that is there. different: it does not, nor does the program of all its steps
    in full. unverifiable: it cannot be tried, or a second run may well give something else.
    slice: the one that was tried last: where statements were left out that are needed, it has its steps in full.
    reason: one sentence; empty when verified.
    """

    outcome: SliceOutcome
    slice: Slice
    reason: str = ""


class Stage(Protocol):
    """A runtime as it is now, and fresh ones like it."""

    def keeps(self, step: int) -> Collection[str]:
        """Names whose values clients put in at this step, and fresh runtimes begin with. START: at first."""

    def present(self, name: str) -> object:
        """A copy of the value that is there. Raises CenoteError."""

    def again(self, source: str, records: Sequence[StepRecord], name: str, seconds: float) -> object:
        """The value after running this in a fresh runtime of the same policy, with no network and nothing to write to
        but its own files. records: of the steps that the source is of: values and files that they put in are there
        from the start, and host calls get the answers that they got, and are never made. Raises CenoteError.
        """


def verify(found: Slice, past: Past, stage: Stage) -> Verification:
    """See Verification. Raises UnavailableError when no jail can be had."""
    for reason in _obstacles(found, past, stage):
        return Verification(outcome="unverifiable", slice=found, reason=reason)
    try:
        present = stage.present(found.symbol)
    except RejectedError as refused:
        return Verification(outcome="unverifiable", slice=found, reason=f"it cannot be compared: {refused}")
    try:
        reason = _tried(found, present, stage)
        if reason and not found.whole:
            found = slice_of(past, found.symbol, found.end, whole=True)
            for obstacle in _obstacles(found, past, stage):
                return Verification(outcome="unverifiable", slice=found, reason=obstacle)
            reason = _tried(found, present, stage)
    except RejectedError as refused:  # by rights or quotas: nothing ran
        return Verification(outcome="unverifiable", slice=found, reason=f"it cannot be tried: {refused}")
    if not reason:
        return Verification(outcome="verified", slice=found)
    for excuse in _excuses(found):
        return Verification(outcome="unverifiable", slice=found, reason=f"{reason}: {excuse}")
    return Verification(outcome="different", slice=found, reason=reason)


def _tried(found: Slice, present: object, stage: Stage) -> str:
    """Why the program does not give the value; empty when it does."""
    records = [step.record for step in found.steps]
    seconds = PATIENCE + SLOWER * sum(record.duration for record in records)
    try:
        value = stage.again(found.source, records, found.symbol, seconds)
    except (RehearsalError, UnsafeValueError, MalformedValueError) as error:
        return str(error)
    return "" if same(present, value) else f"it gives another `{found.symbol}`"


def _obstacles(found: Slice, past: Past, stage: Stage) -> Iterator[str]:
    """Why there is no use in trying."""
    if kind_of(location_of(found.symbol)) != "name" or "/" in found.symbol:
        yield f"`{found.symbol}` is no variable that everybody sees"
    if found.end != past.head:
        yield f"only what is live can be compared, and that is the state after step {past.head}"
    begun = {key_of(each) for each in found.wants if kind_of(each) == "name"} & set(past.begun)
    files = {file(path) for path in past.history.begun_files}
    for name in sorted(begun - set(stage.keeps(START))):
        yield f"the value that `{name}` had at the start is kept no more"
    made = set(begun)
    in_part = {each.step for each in found.statements if each.span is not None}
    for step in found.steps:
        if step.status == "failed" and step.number not in in_part:
            yield f"step {step.number} failed, and the program would end there"
        yield from _obstacle(step.record, made, stage)
        yield from _obstacle_of_upload(step.record, files)
        made |= set(step.writes)
        if (trace := step.record.trace) is not None:
            files |= trace.reads.keys() | (trace.writes.keys() - {TREE})


def _obstacle(record: StepRecord, made: Collection[str], stage: Stage) -> Iterator[str]:
    if record.kind in ("removal", "unrecorded") or (record.kind == "upload" and not record.content):
        yield f"nothing is kept of what step {record.number} did to {', '.join(record.names) or 'the state'}"
    if record.kind == "process":
        yield f"step {record.number} was a process beside the namespace, which is not run again"
    if record.private:
        yield f"step {record.number} worked with names that only {record.author} sees"
    if record.kind == "injection":
        for name in record.names:
            if name not in stage.keeps(record.number):
                yield f"the value of `{name}` that step {record.number} put in is kept no more"
            if name in made:
                yield f"step {record.number} put in a `{name}` where there had been another"


def _obstacle_of_upload(record: StepRecord, files: AbstractSet[Location]) -> Iterator[str]:
    """files: that were written or looked at before it. Fresh runtimes begin with what it wrote."""
    for path in record.names if record.kind == "upload" else ():
        if not files.isdisjoint((file(path), TREE)):
            yield f"step {record.number} wrote {path}, and a step before it may have found another, or none"


def _excuses(found: Slice) -> Iterator[str]:
    """Why another run may give something else though nothing is missing."""
    for step in found.steps:
        trace = step.record.trace
        for reason in trace.unrepeatable if trace is not None else ():
            yield f"step {step.number} may give something else each time, since {reason}"
        for call in step.host_calls:
            if not call.answered:
                yield f"the answer of {call.target} to step {step.number} was not kept"
    if found.wants & DRAWN:
        yield "it draws random numbers that no step has seeded"
    for each in sorted(found.wants):
        if kind_of(each) == "file":
            yield f"it reads {key_of(each)}, which no step has written"
