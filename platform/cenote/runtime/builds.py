"""Builds of artifacts in the process that has the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote.harness.artifacts.build import Builder, BuildOptions
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.artifacts.declaring import declared
from cenote.runtime.ground import RuntimeGround
from cenote.runtime.patch_refusals import REFUSALS, refusal_of
from cenote.runtime.patched_line import told_step
from cenote.runtime.patcher import options_of, patched
from cenote.runtime.workbench import Workbench
from cenote_worker.history.events import SuiteOutcome
from cenote_worker.hosted.patching import BuildRequest, PatchWatch
from cenote_worker.results import Built

if TYPE_CHECKING:
    from cenote_worker.hosted.runtime import HostedRuntime


def build_here(runtime: HostedRuntime, ground: RuntimeGround, options: BuildOptions) -> BuildResult:
    """Of all that is declared. See Builder."""
    bench = Workbench(runtime, runtime.rerunning())
    ground.step_timeout = options.apply.timeout
    result = Builder(runtime.history, ground, bench, options).build(declared(runtime.history.units))
    ground.store(result)
    return result


def build_for_client(runtime: HostedRuntime, request: BuildRequest, watch: PatchWatch) -> Built:
    """See Patcher. What is run is what has run here already, so there is nothing for a client's rules to look at."""
    ground = RuntimeGround(runtime.rerunning(), runtime.resume, None, atomic=request.atomic)
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
