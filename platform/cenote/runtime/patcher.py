"""Patches that are applied in the process that has the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote.harness.apply import ApplyOptions, ApplyResult, Progress, apply_plan
from cenote.harness.apply_ground import EffectNotRepeatedError
from cenote.harness.patch import Patch
from cenote.harness.patch_errors import StalePlanError
from cenote.harness.plan import Plan
from cenote.harness.plan_forecast import PlanGivenUp, make_plan
from cenote.runtime.ground import RuntimeGround
from cenote.runtime.patch_refusals import REFUSALS, refusal_of
from cenote.runtime.patched_line import ToldLine
from cenote_proto.scalars import make
from cenote_proto.v1 import runtime_pb2
from cenote_worker.hosted.patching import BuildRequest, PatchRequest, PatchWatch
from cenote_worker.results import Patched, UnmadeCall

if TYPE_CHECKING:
    from cenote_worker.hosted.runtime import HostedRuntime


def apply_here(plan: Plan, ground: RuntimeGround, options: ApplyOptions) -> ApplyResult:
    """As `apply_plan`; the patched state is kept for longer than others."""
    ground.step_timeout = options.timeout
    result = apply_plan(plan, ground, options)
    if result.status == "applied":
        ground.keep()
    ground.store(result)
    return result


def apply_patch(runtime: HostedRuntime, request: PatchRequest, watch: PatchWatch) -> Patched:
    """See Patcher: for clients of the runtime that are elsewhere. The rules of their code are theirs to apply."""
    ground = RuntimeGround(
        runtime.rerunning(), runtime.resume, None, atomic=request.atomic, cause=request.cause
    )
    try:
        plan = _planned(runtime, request, ground, watch)
        return patched(apply_here(plan, ground, options_of(request, watch)))
    except PlanGivenUp:
        return Patched(status="cancelled", head=ground.head())
    except REFUSALS as error:
        return Patched(status="refused", head=ground.head(), refusal=refusal_of(error))


def options_of(request: PatchRequest | BuildRequest, watch: PatchWatch) -> ApplyOptions:
    return ApplyOptions(
        atomic=request.atomic,
        stop_on_failure=request.stop_on_failure,
        aside=request.aside,
        timeout=request.timeout,
        progress=lambda progress: watch.progress(_told(progress)),
        cancelled=watch.cancelled,
    )


def patched(result: ApplyResult) -> Patched:
    """The same, with steps by number."""
    blocked = result.blocked
    return Patched(
        status=result.status,
        head=result.head,
        rerun=result.steps_rerun,
        reused=result.steps_reused,
        changed=result.changed,
        cut_offs=result.cut_offs,
        seconds_saved=result.seconds_saved,
        records=tuple(record.number for record in result.records),
        failure=result.failure.number if result.failure is not None else 0,
        blocked=_unmade(blocked) if blocked is not None else None,
        aside=result.aside,
        notes=result.notes,
    )


def _planned(runtime: HostedRuntime, request: PatchRequest, ground: RuntimeGround, watch: PatchWatch) -> Plan:
    """Raises StalePlanError for another line than the present one, PlanGivenUp."""
    if ground.head() != request.head:
        raise StalePlanError(request.head, ground.head())
    told = ToldLine(steps=request.steps, tree=runtime.history.tree)
    patch = Patch(changes=(told,), cause=request.cause)
    line = runtime.history.tree.line(request.head)
    begun = runtime.history.begun
    return make_plan(patch, line, ground.kept(), ground.stored(), watch.cancelled, begun)


def _told(progress: Progress) -> runtime_pb2.ApplyProgress:
    return make(
        runtime_pb2.ApplyProgress,
        position=progress.position,
        total=progress.total,
        number=progress.number,
        rerun=progress.rerun,
        reason=progress.reason,
    )


def _unmade(error: EffectNotRepeatedError) -> UnmadeCall:
    return UnmadeCall(target=error.target, method=error.method, arguments=error.arguments)
