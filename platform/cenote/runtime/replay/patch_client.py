"""Patches and builds of a runtime that another process has: what that is asked, and what its answer means here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from cenote.harness.applying.apply import ApplyOptions, ApplyResult, Progress
from cenote.harness.artifacts.build import BuildOptions
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.plan import Plan
from cenote.harness.planning.replay_target import EffectNotRepeatedError
from cenote.runtime.replay.patch_messages import GivenLine, error_of, told_step
from cenote_proto.v1 import runtime_pb2
from cenote_security.rules import CheckSession, SecurityError
from cenote_worker.execution.results import Built, Patched
from cenote_worker.history.events import SuiteOutcome
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord
from cenote_worker.jail.cells.ipython_syntax import to_python
from cenote_worker.runtime.patch_jobs import BuildRequest, PatchRequest, PatchWatch


class PatchClient(Protocol):
    """Applies patches on the platform that has the runtime."""

    def apply(self, request: PatchRequest, watch: PatchWatch) -> Patched:
        """Blocks. Whatever ends it early, an interrupt included, the patch is undone first, if anybody still can.

        Raises what the platform raises; OutcomeUnknownError when its answer is lost for good.
        """

    def begins_otherwise(self) -> str:
        """Why a fresh jail does not begin in the state that the history does; empty if it does."""

    def stored(self) -> Mapping[int, int]:
        """See Ground."""


def apply_by_client(
    plan: Plan,
    options: ApplyOptions,
    line: PatchClient,
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


class BuildClient(Protocol):
    """Builds artifacts on the platform that has the runtime."""

    def build(self, request: BuildRequest, watch: PatchWatch) -> Built:
        """As PatchClient.apply."""


def build_by_client(options: BuildOptions, line: BuildClient, history: Callable[[], History]) -> BuildResult:
    """As Builder."""
    request = BuildRequest(
        atomic=options.apply.atomic,
        stop_on_failure=options.apply.stop_on_failure,
        aside=options.apply.aside,
        timeout=options.apply.timeout,
        keep_failing=options.keep_failing,
        test_seconds=options.test_seconds,
    )
    return built_of(line.build(request, watch_of(options.apply)), history())


def built_of(built: Built, history: History) -> BuildResult:
    """With what the history has of its steps and tests. Raises why it was refused."""
    if built.status == "refused":
        raise error_of(built.refusal, history)
    suites, ran = list(_suites(built, history)), dict(built.ran)
    names = [f"{suite.suite}::{test.name}" for suite in suites for test in suite.tests]
    return BuildResult(
        status=built.status,
        head=built.head,
        rebuilt=built.rebuilt,
        applied=_applied(built, history),
        patch=_patch(built, history),
        before=tuple(history.tree.line(built.before)) if built.before in history.tree else (),
        tests=tuple(test for suite in suites for test in suite.tests),
        ran=ran,
        spared=tuple(name for name in names if name not in ran),
    )


def _applied(built: Built, history: History) -> ApplyResult | None:
    return result_of(built.applied, history) if built.applied is not None else None


def _patch(built: Built, history: History) -> Patch | None:
    if not built.steps:
        return None
    told = GivenLine(steps=built.steps, tree=history.tree)
    return Patch(changes=(told,), reason="brings artifacts up to date")


def _suites(built: Built, history: History) -> Iterator[SuiteOutcome]:
    """Without those that are lost, with the process that wrote them down."""
    for position in built.suites:
        event = history.event(position) if position < history.size else None
        if isinstance(event, SuiteOutcome):
            yield event
