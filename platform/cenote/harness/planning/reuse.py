"""Whether a recorded step may stand in a new history without being run again. Sound first, then sparing."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Final

from cenote.harness.planning.state_contents import (
    Contents,
    effects,
    is_known,
    reads_anything,
    writes_anything,
)
from cenote.harness.record.location_text import listed, shown, spoken
from cenote_worker.execution.trace import (
    ABSENT,
    ASKS_FOR_TIMES,
    TREE,
    Location,
    StepTrace,
    Version,
    form_of,
    kind_of,
)
from cenote_worker.history.step import StepRecord


def why_unwatched(record: StepRecord) -> str:
    """Why too little is known of the step to compare anything. Empty when enough is."""
    trace = effects(record)
    if trace is None:
        return "what it reads and writes was not recorded"
    if reads_anything(trace) or writes_anything(trace):
        return (
            f"it may read or write anything ({shown(trace.opaque[0]) if trace.opaque else 'not known what'})"
        )
    return ""


_OF_VALUES: Final = frozenset(
    cls.__name__
    for cls in (
        *(
            ArithmeticError,
            AssertionError,
            AttributeError,
            FloatingPointError,
            IndexError,
            KeyError,
            LookupError,
        ),
        *(NameError, NotImplementedError, OverflowError, StopIteration, TypeError, UnboundLocalError),
        *(UnicodeDecodeError, UnicodeEncodeError, ValueError, ZeroDivisionError),
    )
)
"""What code raises for what it has read, and for nothing else: not for want of memory, time, files or modules."""


def why_unsteady(record: StepRecord, was: Contents, now: Contents) -> str:
    """Why the step may do something else when it is run again, though all that it reads is equal.

    was, now: see `why_again`.
    """
    if record.status == "failed" and not _fails_again(record, was, now):
        return "it did not end well, and may end otherwise"
    if record.status not in ("ok", "failed", "refused"):
        return "it did not end well, and would have to again"
    if record.trace and record.trace.unrepeatable:
        return f"it may give something else each time ({shown(record.trace.unrepeatable[0])})"
    return ""


def _fails_again(record: StepRecord, was: Contents, now: Contents) -> bool:
    """Whether it raises the same, with the same words. Errors about a name list the nearest existing names."""
    error = record.error
    if error is None or error.reason != "exception" or error.type not in _OF_VALUES:
        return False
    return not tells_names(record) or was.names == now.names


def tells_names(record: StepRecord) -> bool:
    """Whether its error lists names that are near to one that is not there."""
    return record.error is not None and record.error.type in ("NameError", "UnboundLocalError")


def asks_for_times(record: StepRecord) -> bool:
    """Whether it looks when files were changed."""
    return record.trace is not None and ASKS_FOR_TIMES in record.trace.unrepeatable


def writes_files(record: StepRecord) -> bool:
    """Whether it writes any, or removes some."""
    trace = effects(record)
    return trace is not None and any(kind_of(each) == "file" for each in trace.writes)


_PLACE: Final = re.compile(r"<cell (\d+)>|\bcell (\d+), line ")
"""How warnings and tracebacks say in which step's code something stands."""


def why_misplaced(record: StepRecord, standing: Set[int]) -> str:
    """Why what the step recorded of lines of code may be wrong now. standing: the steps whose code is as it was."""
    texts = (record.stdout, record.stderr, record.value or "", str(record.error or ""))
    told = {int(place[1] or place[2]) for text in texts if "cell " in text for place in _PLACE.finditer(text)}
    if moved := told - standing:
        return f"it told of lines of step {min(moved)}, which may be others now"
    return ""


def why_again(record: StepRecord, was: Contents, now: Contents) -> str:
    """Why the step has to be run in the new history. Empty when its recorded result is the right one there.

    was, now: what the old and the new history hold before it. The result is the same if all that the step can have
    seen is the same, versions and sharing, and if what it wrote shares nothing with anything else by now.
    """
    trace = effects(record)
    if trace is None or reads_anything(trace) or writes_anything(trace):
        return why_unwatched(record)
    for location, version in trace.reads.items():
        found = now.version(location)
        if found != version and (is_known(found) or not now.same(was, location)):
            return f"it reads {spoken(location)}, which {_difference(now, location)}"
    for location in trace.mutated - trace.reads.keys():
        if now.version(location) != was.version(location):
            return f"it changes {spoken(location)}, which {_difference(now, location)}"
    for location in trace.writes.keys() - trace.reads.keys() - {TREE}:
        if kind_of(location) == "file" and not _is_alike(was.version(location), now.version(location)):
            return f"it writes {spoken(location)}, which is there in another way now"
    return _why_shared_otherwise(trace, was, now) or _why_entangled(trace, was, now)


def _is_alike(one: Version, other: Version) -> bool:
    """Whether writing a file anew makes the same of both: through a link it would make another file, say."""
    return one == other or (is_known(one) and is_known(other) and form_of(one) == form_of(other))


def _difference(now: Contents, location: Location) -> str:
    if now.version(location) == ABSENT:
        return "is not there any more"
    return "is different now"


def _why_shared_otherwise(trace: StepTrace, was: Contents, now: Contents) -> str:
    reads = trace.reads.keys()
    for location in reads:
        before, after = was.company(location), now.company(location)
        if before is None or after is None:
            untold = was if before is None else now
            others = {each for each in reads - {location} if untold.company(each) is None}
            if before != after and others:
                return f"what it reads as {spoken(location)} may be shared with other names than before"
        elif before & reads != after & reads:
            return f"what it reads as {spoken(location)} is shared with other names than before"
    return ""


def _why_entangled(trace: StepTrace, was: Contents, now: Contents) -> str:
    for group in written_groups(trace):
        for location in group:
            live = now.company(location)
            if live is None:
                changed = len(group) > 1 or location in trace.mutated
                if changed and not (was.company(location) is None and was.tells_alike(now)):
                    return (
                        f"it writes {spoken(location)}, and it is not known what shares objects with that now"
                    )
            elif live != was.group(location) and not live <= group:
                others = listed([spoken(one) for one in sorted(live - group)])
                return f"it writes {spoken(location)}, which {others} shares objects with now"
    return ""


def written_groups(trace: StepTrace) -> tuple[frozenset[Location], ...]:
    """The groups of a trace, and those that were written alone."""
    grouped = frozenset[Location]().union(*trace.groups)
    return (*trace.groups, *(frozenset((one,)) for one in trace.writes if one not in grouped))
