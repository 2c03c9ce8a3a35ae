"""How a history has to be arranged for everything in it to be up to date. Pure.

Some artifacts were changed after they had been used. A history in which their newest content is there before the
first use has nothing out of date. So the changes are moved up, and applying that as a patch runs again what is
affected, and nothing else. A change that cannot be moved, since it needs or touches what came in between, stays where
it is; the final content is written before the first use, and after each such change: an edit finds it edited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cenote.harness.artifacts.declaration import Artifact, UnbuildableError
from cenote.harness.artifacts.staleness import Survey
from cenote.harness.patching.definitions import definition_span, writing
from cenote.harness.patching.patched_history import LineStep
from cenote.harness.planning.state_contents import reads_anything, writes_anything
from cenote.harness.record.location_text import spoken
from cenote_worker.execution.trace import ABSENT, Location, Version
from cenote_worker.execution.trace import name as name_of
from cenote_worker.history.step import StepRecord

_HARMLESS = frozenset((Location("file:."), name_of("_")))
"""Written by nearly every step that shows something or writes a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rearrange:
    """Steps come before others (moved: number of the step, of the one it comes before, why), some never were
    (removed), new ones are there (inserted: code, before which step, why; added: code, after which step, why), some
    run in any case (again: why).
    """

    moved: tuple[tuple[int, int, str], ...] = ()
    inserted: tuple[tuple[str, int, str], ...] = ()
    added: tuple[tuple[str, int, str], ...] = ()
    removed: frozenset[int] = frozenset()
    again: Mapping[int, str] = field(default_factory=dict)

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        steps = {step.number: step for step in line}
        arranged: dict[int, LineStep] = {}
        """By number; new steps have negative numbers."""
        for step in line:
            self._place(step.number, steps, arranged)
        return tuple(step for number, step in arranged.items() if number not in self.removed)

    def _place(self, number: int, steps: Mapping[int, LineStep], arranged: dict[int, LineStep]) -> None:
        """Places a step after all that has to come before it."""
        if number in arranged:
            return
        _insert(self.inserted, number, arranged)
        why = self.again.get(number, "")
        for other, before, reason in self.moved:
            if before == number:
                self._place(other, steps, arranged)
            if other == number:
                why = reason
        arranged[number] = replace(steps[number], change=why) if why else steps[number]
        _insert(self.added, number, arranged)


def _insert(new: Iterable[tuple[str, int, str]], number: int, arranged: dict[int, LineStep]) -> None:
    for code, at, why in new:
        if at == number:
            arranged[-len(arranged) - 1] = LineStep(code=code, change=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """What is to be done. unread: files whose content has to be known for it, with the step of their first use.
    staying: of these, the steps that change it where they are, and may make something else of it by then.
    """

    moved: tuple[tuple[int, int, str], ...] = ()
    written: tuple[tuple[str, int, str], ...] = ()
    removed: frozenset[int] = frozenset()
    again: Mapping[int, str] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    staying: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not (self.moved or self.written or self.unread or self.again)

    def change(self, contents: Mapping[str, str]) -> Rearrange:
        """contents: of the artifacts that had to be read."""
        inserted = [
            (writing(name, contents[name]), before, _why(name)) for name, before in self.unread.items()
        ]
        added = [
            (writing(name, contents[name]), step, _why(name))
            for name, steps in self.staying.items()
            for step in steps
        ]
        return Rearrange(
            moved=self.moved,
            inserted=(*self.written, *inserted),
            added=tuple(added),
            removed=self.removed,
            again=self.again,
        )

    def check(self, survey: Survey, applied: Iterable[StepRecord]) -> None:
        """What was written in advance is what the steps that stay have made of the same as before.

        survey: from before. applied: steps as they were run again. Raises UnbuildableError.
        """
        before = {record.number: record for record in survey.line}
        after = {record.origin: record for record in applied}
        for name, steps in self.staying.items():
            for step in steps:
                other = _differing(before[step], after.get(step), survey.artifacts[name].place)
                if other is not None:
                    raise UnbuildableError(
                        name,
                        f"step {step} changes it, takes {spoken(other)}, which comes out different, and cannot come "
                        f"before step {self.unread[name]}; put the new source in place with Patch.replace_artifact",
                    )


def _differing(was: StepRecord, now: StepRecord | None, place: Location | None) -> Location | None:
    """What the step has read that was not as it is."""
    if now is None or was.trace is None or now.trace is None:
        return None
    found = now.trace.reads
    for each, version in was.trace.reads.items():
        if each != place and found.get(each, version) != version:
            return each
    return None


def arrangement(survey: Survey) -> Arrangement:
    """Raises UnbuildableError for an artifact that was removed, and for a change that cannot be told by itself."""
    moved, written, unread = list[tuple[int, int, str]](), list[tuple[str, int, str]](), dict[str, int]()
    removed, staying = set[int](), dict[str, tuple[int, ...]]()
    moves = dict[str, frozenset[int]]()
    for name, artifact in survey.artifacts.items():
        users = survey.users(name)
        if not users:
            continue
        first, changes = users[0], survey.changes(name, users[0])
        before = survey.line[first].number
        if survey.final.get(name) == ABSENT:
            raise UnbuildableError(
                name, f"step {survey.line[changes[-1]].number} has removed it, and step {before} needs it"
            )
        moving = _moving(survey, name, first, changes)
        if all(_movable(survey, artifact, first, index, moving) for index in moving):
            moved += [(survey.line[index].number, before, _why(name)) for index in sorted(moving)]
            moves[name] = moving
        elif artifact.is_file:
            unread[name] = before
            plain = {index for index in changes if _only_writes(survey, name, index)}
            removed |= {survey.line[index].number for index in plain}
            staying[name] = tuple(survey.line[index].number for index in changes if index not in plain)
        else:
            written.append((_definition(survey, name, changes[-1]), before, _why(name)))
    order = {record.number: index for index, record in enumerate(survey.line)}
    earliest = {each[0]: each for each in sorted(moved, key=lambda each: -order[each[1]])}
    goals = {order[number]: order[before] for number, before, _ in earliest.values()}
    also = [each for name, moving in moves.items() for each in _along(survey, name, moving, goals)]
    return Arrangement(
        moved=tuple(sorted((*earliest.values(), *also), key=lambda each: order[each[0]])),
        written=tuple(written),
        removed=frozenset(removed),
        again=_again(survey),
        unread=unread,
        staying=staying,
    )


def _only_writes(survey: Survey, name: str, index: int) -> bool:
    """Whether the step does nothing but write the file, which is written earlier now."""
    record = survey.line[index]
    return record.kind == "upload" or record.code.startswith(writing(name, ""))


def _why(name: str) -> str:
    return f"it changes `{name}`, and comes before what uses that"


def _again(survey: Survey) -> dict[int, str]:
    """Makers of what is out of date by declaration only: their traces would not have them run."""
    found = {}
    for name, artifact in survey.artifacts.items():
        index = survey.maker(name)
        late = survey.late.get(index, {}) if index is not None else {}
        for dependency in artifact.depends_on:
            if index is not None and dependency in late:
                found[survey.line[index].number] = (
                    f"`{name}` depends on `{dependency}`, which is different now"
                )
    return found


def _moving(survey: Survey, name: str, first: int, changes: Sequence[int]) -> frozenset[int]:
    """The changes, and the steps that only read for them."""
    feeding = {index for index in survey.feeding[name] if first < index < changes[-1]}
    return frozenset(feeding.union(changes))


def _along(
    survey: Survey, name: str, moving: frozenset[int], goals: Mapping[int, int]
) -> Iterator[tuple[int, int, str]]:
    """What uses an artifact may be moved itself: what changes that comes before it there, too, if it can.

    goals: by index of what is moved, that of the step that it comes before.
    """
    for user in goals.keys() & set(survey.users(name)):
        for index in moving:
            if index > user and _movable(survey, survey.artifacts[name], goals[user], index, moving):
                yield survey.line[index].number, survey.line[user].number, _why(name)


def _movable(survey: Survey, artifact: Artifact, first: int, index: int, moving: frozenset[int]) -> bool:
    """Whether the step does the same there, with the others that move, and no step in between is affected."""
    record = survey.line[index]
    trace = record.trace
    if record.kind not in ("cell", "upload") or not record.repeatable or trace is None:
        return False
    if reads_anything(trace) or writes_anything(trace):
        return False
    others = [survey.line[each] for each in range(first, index) if each not in moving]
    if any(writes_anything(one.trace) or reads_anything(one.trace) for one in others):
        return False
    made = {place for one in others if one.trace for place in one.trace.writes} - _HARMLESS
    seen = {place for one in others if one.trace for place in one.trace.reads}
    there = _versions_before(survey, first)
    needs = {place for place, version in trace.reads.items() if there.get(place) != version}
    gives = {place for place, version in trace.writes.items() if there.get(place) != version}
    own = _HARMLESS | {artifact.place}
    return not ((needs - own) & made or (gives - own) & (made | seen))


def _versions_before(survey: Survey, first: int) -> dict[Location, Version]:
    """An import that is made twice gives what is there."""
    found = dict[Location, Version]()
    for record in survey.line[:first]:
        if record.trace is not None:
            found |= {**record.trace.reads, **record.trace.writes}
    return found


def _definition(survey: Survey, name: str, index: int) -> str:
    record = survey.line[index]
    span = definition_span(record.code, name) if record.kind == "cell" else None
    if span is None:
        raise UnbuildableError(
            name,
            f"step {record.number} has changed it, and does more than define it; put the new definition in its "
            "place with Patch.replace_artifact",
        )
    return record.code[span[0] : span[1]]
