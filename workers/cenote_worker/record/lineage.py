"""The steps that led to a state, and why one of them cannot be rerun as it ran. Pure.

A step can be rerun if that changes nothing outside and gives the same: it made no host call whose answer was not
recorded, drew no random numbers that were not seeded, and neither read nor wrote files outside.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from cenote_worker.execution.trace import Location, hidden, key_of, kind_of
from cenote_worker.history.step import StepRecord
from cenote_worker.history.tree import looked_at, written


@dataclass(frozen=True, slots=True)
class Lineage:
    """begun: names that were there before the first step. steps: from the first one of the history to the last."""

    begun: tuple[str, ...]
    steps: tuple[StepRecord, ...]

    def behind(self, earlier: Lineage) -> Lineage:
        """The same line, beginning as `earlier` where that reaches further back."""
        for index, record in enumerate(self.steps):
            if record.kind == "unrecorded":
                known = earlier.until(record.number)
                if known is not None:
                    return Lineage(known.begun, (*known.steps, *self.steps[index + 1 :]))
        if earlier.steps[:1] and self.until(earlier.steps[0].number) is not None:
            return Lineage(earlier.begun, self.steps)
        return self

    def until(self, number: int) -> Lineage | None:
        """The line up to this step; None if the step is not on it."""
        for index, record in enumerate(self.steps):
            if record.number == number:
                return Lineage(self.begun, self.steps[: index + 1])
        return None


DRAWN: Final = frozenset((hidden("random"), hidden("numpy.random"), hidden("torch.random")))
"""Read and written by steps that draw or seed random numbers. They differ in each fresh process."""

_FOLDER: Final = "folder"
"""How versions of folders begin."""

_SEEDING: Final = re.compile(r"seed|set_?state")
_LOOKING: Final = re.compile(r"get_?state")


class CannotRebuildError(Exception):
    """The text says why."""


def check_repeatable(record: StepRecord, hosts: Collection[str], *, reaches_out: bool) -> None:
    """Raises CannotRebuildError. hosts: names of client objects, which the client gives again.

    reaches_out: the runtime may change something outside itself, and a step with an incomplete trace may have.
    """
    for reason in _obstacles(record, hosts, reaches_out=reaches_out):
        raise CannotRebuildError(reason)


def is_seeded(record: StepRecord) -> bool:
    """Whether its random numbers, if any, are probably the same in each run; the state after it will show."""
    return bool(_SEEDING.search(record.code))


def not_drawn(record: StepRecord) -> frozenset[Location]:
    """Random states that it could have used, since the library was imported, and neither drew from nor set."""
    trace = record.trace
    if trace is None or _LOOKING.search(record.code):
        return frozenset()
    return frozenset(
        each for each in DRAWN if each in trace.reads and trace.reads[each] == trace.writes.get(each)
    )


def _obstacles(record: StepRecord, hosts: Collection[str], *, reaches_out: bool) -> Iterator[str]:
    step = f"step {record.number}"
    if record.kind == "unrecorded":
        yield f"nothing is recorded of what was done until {step}"
    if record.kind == "process":
        yield f"{step} was a process beside the namespace, which is not run again"
    if record.changes_file:
        yield f"no checkpoint has what {step} did to the file {', '.join(record.names)}"
    if record.kind == "injection" and not set(record.names) <= set(hosts):
        yield f"the value of {', '.join(record.names)} that {step} put in is kept no more"
    if record.private or record.author:
        yield f"{step} was run by {record.author}, in a place of their own"
    for reason in record.trace.unrepeatable if record.trace is not None else ():
        yield f"{step} may give something else each time, since {reason}"
    unseen = record.trace.unseen if record.trace is not None else ()
    for reason in (*record.unknown, *unseen)[:1] if reaches_out else ():
        yield f"{step} may have done something outside, since {reason}"
    if record.status == "failed" and (record.error is None or record.error.reason != "exception"):
        yield f"{step} was stopped, and would be stopped elsewhere"
    for path in sorted(_outside(set(written(record)) - _empty_folders(record))):
        yield f"{step} writes {path}, which is not in the working directory"
    yield from _unanswered(record)


def _unanswered(record: StepRecord) -> Iterator[str]:
    for call in record.host_calls:
        if not call.answered:
            yield f"the answer of {call.target} to step {record.number} was not kept"
    if not record.tells_calls:
        yield f"not all is recorded of what step {record.number} called outside"


def _empty_folders(record: StepRecord) -> frozenset[Location]:
    """Folders that it made, as libraries do for files that they may write later; the files in one are listed
    separately."""
    writes = record.trace.writes if record.trace is not None else {}
    return frozenset(each for each, version in writes.items() if version.startswith(_FOLDER))


def files_outside(record: StepRecord) -> frozenset[Location]:
    """Files that it reads and that no checkpoint contains."""
    return frozenset(each for each in looked_at(record) if _outside([each]))


def _outside(locations: Iterable[Location]) -> list[str]:
    return [key_of(each) for each in locations if kind_of(each) == "file" and key_of(each).startswith("/")]
