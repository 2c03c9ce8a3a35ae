"""Patches of a runtime that another process has: what is asked of that, and what its answer means here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from cenote.harness.apply import ApplyOptions, ApplyResult, Progress
from cenote.harness.apply_ground import EffectNotRepeatedError
from cenote.harness.plan import Plan
from cenote.runtime.patch_refusals import error_of
from cenote.runtime.patched_line import told_step
from cenote_proto.v1 import runtime_pb2
from cenote_security.rules import CheckSession, SecurityError
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord
from cenote_worker.hosted.patching import PatchRequest, PatchWatch
from cenote_worker.in_jail.rewrite import to_python
from cenote_worker.results import Patched


class PatchLine(Protocol):
    """The way to whoever has the runtime."""

    def apply(self, request: PatchRequest, watch: PatchWatch) -> Patched:
        """Blocks. Whatever ends it early, an interrupt included, the patch is undone first, if anybody still can.

        Raises what the platform raises; OutcomeUnknownError when its answer is lost for good.
        """

    def begins_otherwise(self) -> str:
        """Why a fresh jail does not begin in the state that the history does; empty if it does."""

    def stored(self) -> Mapping[int, int]:
        """See Ground."""


def apply_elsewhere(
    plan: Plan,
    options: ApplyOptions,
    line: PatchLine,
    rules: CheckSession | None,
    history: Callable[[], History],
) -> ApplyResult:
    """As `apply_plan`. rules: that code must pass before it is sent."""
    _check(plan, rules)
    request = PatchRequest(
        head=plan.head,
        steps=tuple(map(told_step, plan.course.line)),
        cause=plan.patch.cause,
        atomic=options.atomic,
        stop_on_failure=options.stop_on_failure,
        aside=options.aside,
        timeout=options.timeout,
    )
    return result_of(line.apply(request, watch_of(options)), history())


def watch_of(options: ApplyOptions) -> PatchWatch:
    return PatchWatch(
        progress=lambda progress: options.progress(_heard(progress)), cancelled=options.cancelled
    )


def result_of(patched: Patched, history: History) -> ApplyResult:
    """With the records that the history has of its steps. Raises why it was refused."""
    if patched.status == "refused":
        raise error_of(patched.refusal, history)
    call = patched.blocked
    return ApplyResult(
        status=patched.status,
        head=patched.head,
        steps_rerun=patched.rerun,
        steps_reused=patched.reused,
        changed=patched.changed,
        cut_offs=patched.cut_offs,
        seconds_saved=patched.seconds_saved,
        records=_records(patched.records, history),
        failure=next(iter(_records((patched.failure,), history)), None),
        blocked=EffectNotRepeatedError(call.target, call.method, call.arguments) if call else None,
        aside=patched.aside,
        notes=patched.notes,
    )


def _records(numbers: tuple[int, ...], history: History) -> tuple[StepRecord, ...]:
    """Without those that are lost, with the process that wrote them down."""
    return tuple(history.tree.get(number) for number in numbers if number and number in history.tree)


def _check(plan: Plan, rules: CheckSession | None) -> None:
    """Raises SecurityError: a patch brings in nothing that a cell may not. Steps as they were have passed."""
    for step in plan.course.line if rules is not None else ():
        if step.change and rules is not None and (violations := rules.check_code(to_python(step.code))):
            raise SecurityError(violations)


def _heard(progress: runtime_pb2.ApplyProgress) -> Progress:
    return Progress(
        position=progress.position,
        total=progress.total,
        number=progress.number,
        rerun=progress.rerun,
        reason=progress.reason,
    )
