"""Applies plans: selective re-execution on a runtime, all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from cenote.harness.applying.auditor import Audit
from cenote.harness.patching.errors import NotPutBackError, NoWayError, StalePlanError, StateNotKeptError
from cenote.harness.patching.patched_history import LineStep
from cenote.harness.planning.forecast import all_forced, cheapest, find_way
from cenote.harness.planning.plan import Plan
from cenote.harness.planning.replay_state import NOTHING_SHARED, Course, NoWayOn, ReplayResult, StepDecision
from cenote.harness.planning.replay_target import EffectNotRepeatedError, Ground
from cenote.harness.planning.replayer import Replayer
from cenote.harness.planning.state_contents import Timeline
from cenote_security.errors import NotKeptError
from cenote_security.policy import check_seconds
from cenote_worker.execution.trace import key_of, kind_of
from cenote_worker.history.step import START, StepRecord

ApplyStatus = Literal["applied", "failed", "blocked", "cancelled"]
"""failed: a step that succeeded before raises now. blocked: an external effect would have been repeated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Reported before each step. position, total: in the patched history. rerun: the step is run, for `reason`."""

    position: int
    total: int
    number: int
    rerun: bool
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyResult:
    """The result of applying a plan. Unless it was applied, the state and the head are unchanged.

    head: the newest step of the patched history, or the head as it was. steps_rerun, steps_reused: numbers of the
    steps they stand for; of new steps, their own. changed: names that are different now. cut_offs: steps that were
    run with the same result as before, so that their dependents need not be run.
    seconds_saved: what the reused steps after the change took when they were recorded.
    records: the new steps. failure: the step that failed. blocked: the call that was not made.
    aside: the step whose state was kept when a step failed, if `ApplyOptions.aside` was set; 0 for none.
    notes: deviations from the plan, in sentences, such as that a checkpoint could not be read.
    audit: the result of running the patched history in full; None where that was not done, see `audit_patches`.
    """

    status: ApplyStatus
    head: int
    steps_rerun: tuple[int, ...] = ()
    steps_reused: tuple[int, ...] = ()
    changed: tuple[str, ...] = ()
    cut_offs: tuple[int, ...] = ()
    seconds_saved: float = 0.0
    records: tuple[StepRecord, ...] = field(default=(), repr=False)
    failure: StepRecord | None = None
    blocked: EffectNotRepeatedError | None = None
    aside: int = 0
    notes: tuple[str, ...] = ()
    audit: Audit | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyOptions:
    """How a plan is applied.

    atomic: refuse to begin where a failure could not be undone. stop_on_failure: a step that succeeded before and
    raises now ends it; else the next steps are run, as a notebook's cells are when they are run one by one.
    aside: keep what was done before a failure as a branch with a state. progress: called before each step.
    cancelled: called before each step. timeout: seconds for each step that is run again and had no limit of its own;
    by default the policy's `cell_timeout`, else ten minutes, or ten times what the step took before. A step that
    takes longer fails.
    """

    atomic: bool = True
    stop_on_failure: bool = True
    aside: bool = False
    progress: Callable[[Progress], None] = lambda _: None
    cancelled: Callable[[], bool] = lambda: False
    timeout: float | None = None

    def __post_init__(self) -> None:
        check_seconds(self.timeout, "the timeout of a step")


class _Failed(Exception):
    def __init__(self, record: StepRecord) -> None:
        super().__init__(record.number)
        self.record = record


class _Cancelled(Exception):
    pass


class _Watch:
    """Reports the walk's progress, and ends it."""

    def __init__(self, total: int, options: ApplyOptions) -> None:
        self._total = total
        self._options = options

    def before(self, position: int, step: LineStep, reason: str) -> None:
        if self._options.cancelled():
            raise _Cancelled
        self._options.progress(
            Progress(
                position=position + 1,
                total=self._total,
                number=step.number,
                rerun=bool(reason),
                reason=reason,
            )
        )

    def after(self, step: LineStep, record: StepRecord) -> None:
        failed_before = step.origin is not None and step.origin.status == "failed" and not step.change
        if self._options.stop_on_failure and record.status != "ok" and not failed_before:
            raise _Failed(record)


def apply_plan(plan: Plan, ground: Ground, options: ApplyOptions | None = None) -> ApplyResult:
    """Re-runs what the patch affects, and nothing else, so that the state is that of a full run.

    Raises, before anything runs, StalePlanError if the runtime has gone on; StateNotKeptError if it is to be atomic
    and cannot be; NoWayError if too little is kept. Whatever else ends it early, an interrupt included, the state is
    put back first; NotPutBackError if memory was so short that it could not be.
    """
    options = options or ApplyOptions()
    if ground.head() != plan.head:
        raise StalePlanError(plan.head, ground.head())
    kept = ground.keep()
    if options.atomic and not kept:
        raise StateNotKeptError
    with ground.holding():
        return _applied_or_undone(_with_kept(plan, ground), plan, ground, options, kept=kept)


def _applied_or_undone(
    course: Course, plan: Plan, ground: Ground, options: ApplyOptions, *, kept: bool
) -> ApplyResult:
    notes = [*_replanned(plan, course), *filter(None, [plan.packages])]
    try:
        course, walked = _walk(course, ground, options, notes)
    except (_Failed, _Cancelled, EffectNotRepeatedError) as ended:
        aside = ground.head() if options.aside and ground.keep(partial=True) else 0
        _undo(ground, plan, kept=kept)
        return replace(_ended(ended, plan.head, aside), notes=(*notes, *ground.notes))
    except BaseException:
        _undo(ground, plan, kept=kept)
        raise
    return replace(_applied(plan, course, walked, ground.head()), notes=(*notes, *ground.notes))


def _with_kept(plan: Plan, ground: Ground) -> Course:
    """The plan's course with the states that exist by now. Another course if its beginning is none of these, or if
    the present state can lend what it has, which was not known when the plan was made."""
    kept, stored, lent = ground.kept(), ground.stored(), ground.lent()
    if not lent and (plan.base in kept or plan.base in stored):
        return replace(plan.course, kept=kept, stored=stored)
    return cheapest(plan.patch, plan.course.records, kept, stored, lent, begun=plan.course.begun).course


def _replanned(plan: Plan, course: Course) -> list[str]:
    if plan.strategy != "checkpoint" or plan.base in course.stored:
        return []
    return [f"the checkpoint after step {plan.base} is not there any more"]


def _walk(
    course: Course, ground: Ground, options: ApplyOptions, notes: list[str]
) -> tuple[Course, ReplayResult]:
    """From the cheapest state to begin with; then from one that both histories share; then all is run, from that one
    and at last from older ones. notes: gets what is said of checkpoints that could not be gone on from."""
    watch = _Watch(len(course.line), options)
    behind = course.from_shared()
    ways = (course, behind, all_forced(behind)) if course.continues else (course, all_forced(behind))
    reason = NOTHING_SHARED
    for way in (*ways, *map(all_forced, behind.from_older())):
        try:
            return find_way(way, lambda course: _begun(course, ground, watch))
        except NoWayOn as none:
            reason = str(none)
            if way.begins_beside and way.base and (note := _not_from(way.base, reason)) not in notes:
                notes.append(note)
    raise NoWayError(reason)


def _not_from(step: int, reason: str) -> str:
    return f"the checkpoint after step {step} was not gone on from: {reason}"


def _begun(course: Course, ground: Ground, watch: _Watch) -> ReplayResult:
    """One walk, from its beginning, or from the newest state before that which is kept now. Raises NoWayOn."""
    kept, stored = ground.kept(), dict(ground.stored())
    while True:
        course = course.begun_from(kept, stored)
        walk = Replayer(course, ground, watch)
        try:
            stays = ground.head() == course.base == course.head
            if not stays and ground.rollback(course.base) and course.base != START:
                raise NotKeptError(course.base)
            break
        except NotKeptError:  # for want of memory, in this moment, or since it had pipes or processes
            kept -= {course.base}
            stored.pop(course.base, None)
    if course.continues:
        ground.branch(course.records[course.fork - 1].number if course.fork else START)
    return walk.go()


def _undo(ground: Ground, plan: Plan, *, kept: bool) -> None:
    """The state is put back. kept: whether it is known to have been kept."""
    try:
        ground.rollback(plan.head)
    except NotKeptError:
        if kept:
            raise NotPutBackError(plan.head, _nearest(ground, plan)) from None


def _nearest(ground: Ground, plan: Plan) -> int | None:
    """Goes back to the newest state of the old line that is kept."""
    known = {START, *(record.number for record in plan.course.records)}
    for step in sorted(known & ground.kept(), reverse=True):
        with suppress(NotKeptError):
            ground.rollback(step)
            return step
    return None


def _ended(ended: Exception, head: int, aside: int) -> ApplyResult:
    match ended:
        case _Failed(record=record):
            return ApplyResult(status="failed", head=head, failure=record, aside=aside)
        case EffectNotRepeatedError():
            return ApplyResult(status="blocked", head=head, blocked=ended, aside=aside)
    return ApplyResult(status="cancelled", head=head, aside=aside)


def _applied(plan: Plan, course: Course, walked: ReplayResult, head: int) -> ApplyResult:
    rerun = [verdict for verdict in walked.verdicts if verdict.rerun]
    reused = [verdict for verdict in walked.verdicts if not verdict.rerun]
    shared = {record.number for record in course.records[: course.fork]}
    return ApplyResult(
        status="applied",
        head=head,
        steps_rerun=tuple(_number(verdict) for verdict in rerun),
        steps_reused=tuple(_number(verdict) for verdict in reused),
        changed=_changed(plan, course, walked),
        cut_offs=tuple(_number(verdict) for verdict in rerun if verdict.equal),
        seconds_saved=sum(verdict.record.duration for verdict in reused if verdict.step.number not in shared),
        records=tuple(verdict.record for verdict in walked.verdicts),
    )


def _number(verdict: StepDecision) -> int:
    return verdict.step.number or verdict.record.number


def _changed(plan: Plan, course: Course, walked: ReplayResult) -> tuple[str, ...]:
    """Names that were written, and whose versions differ, or are not known, at the ends of both histories."""
    before = Timeline(course.records).at((plan.head,))[plan.head]
    written = {
        location
        for record in (*course.records[course.fork :], *(verdict.record for verdict in walked.verdicts))
        if record.trace
        for location in record.trace.writes
    }
    return tuple(
        sorted(
            key_of(location)
            for location in written
            if kind_of(location) == "name" and before.version(location) != walked.contents.version(location)
        )
    )
