"""Makes plans: walks along the patched history on a `Ground` that only guesses what steps would do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from types import MappingProxyType

from cenote.harness.patching.errors import NoWayError
from cenote.harness.patching.patch import Patch
from cenote.harness.patching.patched_history import LineStep, shared_steps
from cenote.harness.planning.plan import Action, BlockedEffect, Plan, PlannedStep, Strategy
from cenote.harness.planning.replay_state import (
    NOTHING_SHARED,
    Course,
    NoWayOn,
    ReplayResult,
    RestartReplay,
    StepDecision,
)
from cenote.harness.planning.replay_target import NotCarriedError
from cenote.harness.planning.replayer import Replayer
from cenote.harness.planning.state_contents import effects, writes_anything
from cenote.harness.planning.stored_states import LOST, beyond_storing, newest_first
from cenote.harness.record.code_names import bound_names, written_file
from cenote_worker.execution.trace import ABSENT, Location, StepTrace, Version, file, kind_of, name
from cenote_worker.history.events import EnvironmentUsed, packages_of
from cenote_worker.history.step import START, StepRecord

_TRIES = 20

TOO_LITTLE = "too little of the state could be carried over"
"""Walks that end with something learned, before all is run: more only ever happens with results that get lost."""

_CARRYING = 0.005
"""Seconds that bringing over a group is taken to cost: what it weighs is not known here."""

_FILLING = 0.05
"""Seconds that starting another process with a stored state is taken to cost."""


class PlanGivenUp(Exception):
    """The caller does not wait for the plan any more."""


def _never() -> bool:
    return False


class Forecast:
    """A `Ground` without a state. It expects that everything a step has written comes out different."""

    def __init__(self, head: int, cancelled: Callable[[], bool] = _never) -> None:
        """cancelled: called before each step; if true, PlanGivenUp is raised."""
        self._head = head
        self._cancelled = cancelled
        self._number = 0
        self._reason = ""
        self._forced: Mapping[int, str] = {}
        self.notes: Sequence[str] = ()

    def expect(self, forced: Mapping[int, str]) -> None:
        """Takes steps that are run for their results only: those will be what they were."""
        self._forced = forced

    def before(self, position: int, step: LineStep, reason: str) -> None:  # noqa: ARG002  (of a ReplayObserver)
        if self._cancelled():
            raise PlanGivenUp
        self._reason = reason

    def after(self, step: LineStep, record: StepRecord) -> None: ...

    def head(self) -> int:
        return self._head

    def kept(self) -> frozenset[int]:
        return frozenset((START, self._head))

    def stored(self) -> Mapping[int, int]:
        return {}

    def unlike(self, step: int, versions: Mapping[Location, Version]) -> frozenset[Location]:  # noqa: ARG002
        return beyond_storing(versions) | {one for one, version in versions.items() if version == LOST}

    def lent(self) -> frozenset[int]:
        return frozenset()

    def holding(self) -> AbstractContextManager[None]:
        return nullcontext()

    def keep(self, *, partial: bool = False) -> bool:  # noqa: ARG002
        return True

    def rollback(self, step: int) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def branch(self, step: int) -> None: ...

    def execute(self, record: StepRecord | None, code: str, *, tentative: bool) -> StepRecord:  # noqa: ARG002
        self._number -= 1
        if record is None:
            return StepRecord(number=self._number, code=code, trace=self._guess(StepTrace(), code))
        again = record.by_hand or self._forced.get(record.number) == self._reason
        trace = effects(record)
        if trace is not None and not again:
            trace = self._guess(trace, code if code != record.code else "")
        return replace(record, number=self._number, origin=record.number, code=code, trace=_unseen(trace))

    def _guess(self, trace: StepTrace, new_code: str) -> StepTrace:
        """Different wherever it has written, and wherever new code may."""
        different = Version(f"new {self._number}")
        deleted = trace.deleted if not new_code else frozenset[Location]()
        writes = {location: ABSENT if location in deleted else different for location in trace.writes}
        writes.update({name(bound): different for bound in bound_names(new_code)})
        if path := written_file(new_code):
            writes[file(path)] = different
        return replace(trace, writes=writes)

    def reuse(self, record: StepRecord) -> StepRecord:
        return record

    def versions(self, locations: Iterable[Location], author: str = "") -> Mapping[Location, Version]:  # noqa: ARG002
        return {}

    def carry(self, step: int, locations: frozenset[Location]) -> None:  # noqa: ARG002
        for location in sorted(locations):
            if kind_of(location) == "module":
                raise NotCarriedError(locations, "attributes of modules cannot be carried")

    def forget(self, locations: frozenset[Location]) -> None: ...

    def arrange(self, names: Sequence[Location], *, whole: bool) -> None: ...

    def load(self, modules: tuple[str, ...]) -> None: ...


def _unseen(trace: StepTrace | None) -> StepTrace | None:
    """Nothing is claimed of what it will have found, unless that it may be anything."""
    return trace if trace is None or writes_anything(trace) else replace(trace, reads={})


def find_way(course: Course, walk: Callable[[Course], ReplayResult]) -> tuple[Course, ReplayResult]:
    """Walks until a walk comes to its end, each with what the one before has learned. Raises NoWayOn."""
    for _ in range(_TRIES):
        try:
            return course, walk(course)
        except RestartReplay as again:
            course = learned(course, again)
    course = all_forced(course)
    try:
        return course, walk(course)
    except RestartReplay as again:
        raise NoWayOn(next(iter(again.forced.values()), TOO_LITTLE)) from again


def learned(course: Course, again: RestartReplay) -> Course:
    """The course with what a walk has learned."""
    needs = dict(course.needs)
    for position, locations in again.needs.items():
        needs[position] = needs.get(position, frozenset()) | locations
    return replace(course, forced={**course.forced, **again.forced}, needs=needs)


def all_forced(course: Course) -> Course:
    """Every step is run that can be. Mostly this comes to its end from a state that both histories share."""
    again = [step.origin for step in course.line if step.origin is not None and step.origin.repeatable]
    return replace(course, forced={record.number: TOO_LITTLE for record in again})


def make_plan(
    patch: Patch,
    records: Sequence[StepRecord],
    kept: Collection[int],
    stored: Mapping[int, int] = MappingProxyType({}),
    cancelled: Callable[[], bool] = _never,
    begun: Sequence[str] = (),
    environments: Sequence[EnvironmentUsed] = (),
) -> Plan:
    """What applying the patch to this line would do, from the cheapest state to begin with.

    records: the line from the start to the head. kept: steps whose end states can be gone back to; the head is
    taken to be one of them. stored: see Ground. cancelled: see Forecast; traces come from jails, and may take minutes
    to read. begun: names that were there before the first step, in their order. environments: of the history.
    Raises PatchConflictError if the patch does not fit the line; NoWayError if a needed state is not kept any more;
    PlanGivenUp. Nothing is executed.
    """
    plan = cheapest(
        patch, records, frozenset({_head(records), *kept}), stored, cancelled=cancelled, begun=begun
    )
    return replace(plan, packages=other_packages([step.number for step in plan.rerun], environments))


def other_packages(steps: Iterable[int], environments: Sequence[EnvironmentUsed]) -> str:
    """A sentence where some of the steps were recorded with other packages than the last ones; else empty."""
    now = environments[-1] if environments else EnvironmentUsed()
    before = {number: packages_of(number, environments) for number in steps if number != START}
    others = [number for number, used in before.items() if used.digest != now.digest]
    if not others:
        return ""
    which = f"step {others[0]}" if len(others) == 1 else f"{len(others)} steps, step {others[0]} first,"
    return f"{which} ran with {before[others[0]]} and would run again with {now}: results may differ"


def cheapest(
    patch: Patch,
    records: Sequence[StepRecord],
    kept: frozenset[int],
    stored: Mapping[int, int],
    lent: frozenset[int] = frozenset(),
    cancelled: Callable[[], bool] = _never,
    begun: Sequence[str] = (),
) -> Plan:
    """As `make_plan`, from one of these states."""
    line = patch.applied(records)
    fork = shared_steps(records, line)
    base = _head(records)
    course = Course(
        records=tuple(records), line=line, fork=fork, base=base, kept=kept, stored=stored, lent=lent,
        begun=tuple(begun),
    )  # fmt: skip
    newest = sorted(course.shared & kept)[-1:]
    reasons = list[tuple[bool, str]]()

    def plans_from(bases: Iterable[int]) -> Iterator[Plan]:
        for way in (replace(course, base=base) for base in bases):
            try:
                yield _foreseen(patch, way, cancelled)
            except NoWayOn as none:
                reasons.append((way.continues, str(none)))

    present = [*newest, *({base} & kept)]
    beside = newest_first(stored, course.shared, behind=newest)
    older = (each for each in course.beginnings if each not in (*present, *beside))
    plans = [*plans_from(present), *islice(plans_from(beside), 1)] or [*islice(plans_from(older), 1)]
    if not plans:  # what keeps the line from being run is worth more than why the present state does not do
        raise NoWayError(min(reasons, key=itemgetter(0))[1] if course.beginnings else NOTHING_SHARED)
    return min(plans, key=_cost)


def _cost(plan: Plan) -> float:
    return plan.seconds + _CARRYING * len(plan.carried) + _FILLING * plan.course.begins_beside


def _head(records: Sequence[StepRecord]) -> int:
    return records[-1].number if records else START


def foresee(course: Course, ground: Forecast) -> ReplayResult:
    """One walk over nothing."""
    ground.expect(course.forced)
    return Replayer(course, ground, ground).go()


def _foreseen(patch: Patch, course: Course, cancelled: Callable[[], bool]) -> Plan:
    head = course.head

    def walk(course: Course) -> ReplayResult:
        return foresee(course, Forecast(head, cancelled))

    try:
        course, walked = find_way(course, walk)
    except NoWayOn:
        if course.continues:
            raise
        course, walked = find_way(all_forced(course), walk)
    return Plan(
        patch=patch,
        head=head,
        strategy=_strategy(course),
        course=course,
        steps=_planned(course, walked),
        carried=walked.carried,
        blocked=tuple(effect for verdict in walked.verdicts if verdict.rerun for effect in _blocked(verdict)),
        seconds=sum(_seconds(verdict) for verdict in walked.verdicts if verdict.rerun),
    )


def _strategy(course: Course) -> Strategy:
    if course.continues:
        return "continue"
    if course.base == START:
        return "start"
    return "checkpoint" if course.begins_beside else "snapshot"


def _planned(course: Course, walked: ReplayResult) -> tuple[PlannedStep, ...]:
    before = [
        PlannedStep(
            number=step.number,
            position=position,
            action="reuse",
            reason="it comes before the change",
            seconds=step.origin.duration if step.origin else 0.0,
        )
        for position, step in enumerate(course.line[: course.begin], 1)
    ]
    moved = frozenset[Location]().union(*(carried.locations for carried in walked.carried))
    after = [
        PlannedStep(
            number=verdict.step.number,
            position=position,
            action=_action(verdict, moved),
            reason=verdict.reason,
            puts_in=_put_in(verdict),
            seconds=_seconds(verdict),
        )
        for position, verdict in enumerate(walked.verdicts, course.begin + 1)
    ]
    return (*before, *after)


def _action(verdict: StepDecision, moved: frozenset[Location]) -> Action:
    if verdict.rerun:
        return "rerun"
    trace = verdict.record.trace
    return "restore" if trace is not None and trace.writes.keys() & moved else "reuse"


def _put_in(verdict: StepDecision) -> tuple[str, ...]:
    origin = verdict.step.origin
    return origin.names if origin is not None and origin.kind == "injection" else ()


def _seconds(verdict: StepDecision) -> float:
    return verdict.step.origin.duration if verdict.step.origin else 0.0


def _blocked(verdict: StepDecision) -> list[BlockedEffect]:
    calls = verdict.step.origin.host_calls if verdict.step.origin else ()
    return [
        BlockedEffect(
            number=verdict.step.number, target=call.target, method=call.method, arguments=call.arguments
        )
        for call in calls
        if call.effect == "external"
    ]
