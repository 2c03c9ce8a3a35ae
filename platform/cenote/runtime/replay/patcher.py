"""Patches and builds of artifacts, in the process that has the runtime.

Hosts of a platform are workers, and know nothing of plans and artifacts: they are given `HOST_PATCHER`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from cenote.harness.applying.apply import ApplyOptions, ApplyResult, Progress, apply_plan
from cenote.harness.artifacts.build import Builder, BuildOptions
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.artifacts.declaration import declared, news
from cenote.harness.patching.errors import StalePlanError, StateNotKeptError
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.forecast import PlanGivenUp, make_plan
from cenote.harness.planning.plan import Plan
from cenote.harness.planning.replay_target import EffectNotRepeatedError
from cenote.runtime.core.listeners import BlockingListener
from cenote.runtime.core.replies import done, result, rollback, value
from cenote.runtime.replay.fresh_runs import run_in_full
from cenote.runtime.replay.patch_messages import REFUSALS, GivenLine, refusal_of, told_step
from cenote.runtime.replay.replay_target import RuntimeReplayTarget
from cenote_proto.scalars import make
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import MalformedValueError, UnavailableError
from cenote_worker.execution.results import Built, ExecutionResult, Patched, UnmadeCall
from cenote_worker.history.events import ArtifactDeclared, SuiteOutcome
from cenote_worker.runtime.patch_jobs import BuildRequest, Patcher, PatchRequest, PatchWatch
from cenote_worker.runtime.reruns import Rerun, Reruns
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.scratch_runtime import FullRun, FullRunWatch
from cenote_worker.supervisor.frame_parser import ValueReply
from cenote_worker.supervisor.requests import Listener, Outcome


def apply_here(plan: Plan, ground: RuntimeReplayTarget, options: ApplyOptions) -> ApplyResult:
    """As `apply_plan`; the patched state is kept for longer than others."""
    ground.step_timeout = options.timeout
    result = apply_plan(plan, ground, options)
    if result.status == "applied":
        ground.keep()
    ground.store(result)
    return result


def apply_patch(runtime: HostedRuntime, request: PatchRequest, watch: PatchWatch) -> Patched:
    """See Patcher: for clients of the runtime that are elsewhere. The rules of their code are theirs to apply."""
    ground = RuntimeReplayTarget(
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


def _planned(
    runtime: HostedRuntime, request: PatchRequest, ground: RuntimeReplayTarget, watch: PatchWatch
) -> Plan:
    """Raises StalePlanError for another line than the present one, PlanGivenUp."""
    if ground.head() != request.head:
        raise StalePlanError(request.head, ground.head())
    told = GivenLine(steps=request.steps, tree=runtime.history.tree)
    patch = Patch(changes=(told,), cause=request.cause)
    line = runtime.history.tree.line(request.head)
    begun = runtime.history.begun
    known = runtime.history.environments
    return make_plan(patch, line, ground.kept(), ground.stored(), watch.cancelled, begun, known)


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


MAX_ANSWER: Final = 16 * 2**20
"""Bytes of what code beside the state gives: results of thousands of tests. Rebuilt here, where a host serves others
too, it takes many times as much."""


class RuntimeBuildSandbox:
    """See BuildSandbox."""

    def __init__(self, runtime: HostedRuntime, reruns: Reruns) -> None:
        self._runtime = runtime
        self._reruns = reruns

    def note(self, outcome: SuiteOutcome) -> None:
        self._reruns.history.tested(outcome)

    def beside(self, code: str, name: str) -> object:
        self._keep()
        head = self._reruns.history.tree.head
        found = self._run(code)
        if found.state == "lost":
            raise UnavailableError("the runtime ended while its tests ran")
        try:
            if not found.success:
                raise UnavailableError(
                    f"what was run beside the state did not come to its end: {found.error}"
                )
            fetched = self._call(lambda listener: self._runtime.fetch(name, listener, opaque=False))
            return value(_bounded(fetched), name, {}, (), trusted=False)
        finally:
            rollback(self._call(lambda listener: self._reruns.rollback(head, listener)))

    def _keep(self) -> None:
        outcome = self._call(lambda listener: self._reruns.keep(listener, label=""))
        if isinstance(outcome, UnavailableError):
            raise StateNotKeptError
        done(outcome, "")
        # Nothing is run beside a state that is not whole, though its last step may have run before it was.
        self._reruns.completed(self._reruns.history.tree.head)

    def _run(self, code: str) -> ExecutionResult:
        """No effect outside comes of it: no record answers its host calls."""
        listener = BlockingListener()
        rerun = Rerun(code=code, record=None, cause="", tentative=True)
        withdraw = self._reruns.run(rerun, listener, lambda _: None)
        try:
            return result(listener.wait(self._runtime.resume))
        except BaseException:
            if withdraw is not None:
                withdraw()
            raise

    def _call(self, queue: Callable[[Listener], None]) -> Outcome:
        listener = BlockingListener()
        queue(listener)
        return listener.wait(self._runtime.resume)


def _bounded(outcome: Outcome) -> Outcome:
    """Raises MalformedValueError for too much; it is not read then."""
    if isinstance(outcome, ValueReply) and outcome.content.size > MAX_ANSWER:
        outcome.content.close()
        raise MalformedValueError(f"more than {MAX_ANSWER} bytes of results; test less at once")
    return outcome


def build_here(runtime: HostedRuntime, ground: RuntimeReplayTarget, options: BuildOptions) -> BuildResult:
    """Of all that is declared. See Builder."""
    bench = RuntimeBuildSandbox(runtime, runtime.rerunning())
    ground.step_timeout = options.apply.timeout
    result = Builder(runtime.history, ground, bench, options).build(declared(runtime.history.units))
    ground.store(result)
    return result


def build_for_client(runtime: HostedRuntime, request: BuildRequest, watch: PatchWatch) -> Built:
    """See Patcher. What is run is what has run here already, so there is nothing for a client's rules to look at."""
    ground = RuntimeReplayTarget(runtime.rerunning(), runtime.resume, None, atomic=request.atomic)
    options = BuildOptions(
        apply=options_of(request, watch), keep_failing=request.keep_failing, test_seconds=request.test_seconds
    )
    since = runtime.history.size
    try:
        result = build_here(runtime, ground, options)
    except REFUSALS as error:
        return Built(status="refused", head=ground.head(), refusal=refusal_of(error))
    return _built(result, _suites(runtime, since))


def _suites(runtime: HostedRuntime, since: int) -> tuple[int, ...]:
    """Where the history has what came of tests, from a position on."""
    history = runtime.history
    return tuple(at for at in range(since, history.size) if isinstance(history.event(at), SuiteOutcome))


def _built(result: BuildResult, suites: tuple[int, ...]) -> Built:
    line = result.patch.applied(result.before) if result.patch is not None else ()
    return Built(
        status=result.status,
        head=result.head,
        rebuilt=result.rebuilt,
        applied=patched(result.applied) if result.applied is not None else None,
        steps=tuple(map(told_step, line)),
        before=result.before[-1].number if result.before else 0,
        suites=suites,
        ran=tuple(result.ran.items()),
    )


class _HostPatcher:
    """See Patcher. It has no state, and is pickled by name for hosts of other processes."""

    def patch(self, runtime: HostedRuntime, request: PatchRequest, watch: PatchWatch) -> Patched:
        return apply_patch(runtime, request, watch)

    def build(self, runtime: HostedRuntime, request: BuildRequest, watch: PatchWatch) -> Built:
        return build_for_client(runtime, request, watch)

    def run_in_full(
        self, runtime: HostedRuntime, head: int, watch: FullRunWatch
    ) -> AbstractContextManager[FullRun]:
        return run_in_full(runtime, head, watch)

    def declare(self, runtime: HostedRuntime, units: Sequence[ArtifactDeclared]) -> None:
        runtime.history.declared(news(runtime.history.units, units))


HOST_PATCHER: Final[Patcher] = _HostPatcher()
