"""What a stored state lacks of the state that was stored: a replay that begins with it has to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from cenote.harness.planning.replay_state import Course
from cenote.harness.planning.state_contents import Contents, effects
from cenote_worker.execution.trace import (
    ABSENT,
    HIDDEN,
    LEFT_BEHIND,
    TREE,
    Location,
    Version,
    key_of,
    kind_of,
)
from cenote_worker.history.step import START, StepRecord

LOST: Final = Version("?lost")
"""Version of what differs in a stored state from what it was."""


def why_not_begun_with(course: Course, contents: Contents) -> str:
    """Why the stored state that the course begins with may lack what cannot be looked for; empty if it does not.

    contents: what its records tell of it.
    """
    if course.base == START:
        return ""
    if contents.era > course.stored[course.base]:
        return f"step {contents.era} may have changed something that a checkpoint does not have"
    before = course.records[: course.begin]
    return _why_other_modules(before, contents) or _why_other_authors(before)


def _why_other_modules(records: Iterable[StepRecord], contents: Contents) -> str:
    """A module that steps have imported is imported anew: from the file that is there by then."""
    for record in records:
        trace = effects(record)
        for location, version in trace.reads.items() if trace is not None and trace.modules else ():
            stem = key_of(location).rpartition("/")[2].removesuffix(".py")
            if kind_of(location) != "file" or trace is None or contents.version(location) == version:
                continue
            if stem in {part for dotted in trace.modules for part in dotted.split(".")}:
                return f"the module `{stem}` was imported, and its file is different since"
    return ""


def _why_other_authors(records: Iterable[StepRecord]) -> str:
    """A checkpoint has the surroundings of its runtime's owner only, not those of other authors."""
    for record in records:
        trace = effects(record)
        if record.author and trace is not None and any(kind_of(each) == "hidden" for each in trace.writes):
            return f"step {record.number} has changed what surrounds {record.author} alone"
    return ""


def modules_before(course: Course) -> tuple[str, ...]:
    """What the steps before have imported: later ones may rely on it."""
    traces = [record.trace for record in course.records[: course.begin] if record.trace is not None]
    return tuple(dict.fromkeys(module for trace in traces for module in trace.modules))


def to_compare(course: Course, contents: Contents) -> Mapping[Location, Version]:
    """What may be there otherwise in the stored state. Files of the working directory are in every checkpoint; of
    the start, only what lies outside that can have been left otherwise. What has left something behind when it was
    stored has a version that nothing there can have."""
    told = {one: version for one, version in contents.told.items() if one != TREE}
    left = dict.fromkeys(_left_behind(course, contents), LOST)
    return {one: version for one, version in {**told, **left}.items() if _is_in_doubt(one, course.base)}


def _left_behind(course: Course, contents: Contents) -> Iterator[Location]:
    for record in course.records[: course.begin]:
        for location, reason in (record.trace.unportable if record.trace else {}).items():
            if reason in LEFT_BEHIND and contents.writer(location) == record.number:
                yield location


def _is_in_doubt(location: Location, base: int) -> bool:
    if kind_of(location) == "file":
        return key_of(location).startswith("/")
    return base != START


def beyond_storing(versions: Mapping[Location, Version]) -> frozenset[Location]:
    """Those that no checkpoint has, whatever they hold; unless there was nothing, as in any fresh process."""
    return frozenset(
        one
        for one, version in versions.items()
        if kind_of(one) == "hidden" and key_of(one) not in HIDDEN and version != ABSENT
    )


def newest_first(stored: Mapping[int, int], shared: Iterable[int], *, behind: Sequence[int]) -> list[int]:
    """Stored states that both lines share, of steps after all of `behind`."""
    return sorted(
        (step for step in shared if step in stored and step > max(behind, default=-1)), reverse=True
    )
