"""Builds of a runtime that another process has: what is asked of that, and what its answer means here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from cenote.harness.apply import ApplyResult
from cenote.harness.artifacts.build import BuildOptions
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.patch import Patch
from cenote.runtime.patch_refusals import error_of
from cenote.runtime.patched_line import ToldLine
from cenote.runtime.patches_elsewhere import result_of, watch_of
from cenote_worker.history.events import SuiteOutcome
from cenote_worker.history.history import History
from cenote_worker.hosted.patching import BuildRequest, PatchWatch
from cenote_worker.results import Built


class BuildLine(Protocol):
    """The way to whoever has the runtime."""

    def build(self, request: BuildRequest, watch: PatchWatch) -> Built:
        """As PatchLine.apply."""


def build_elsewhere(options: BuildOptions, line: BuildLine, history: Callable[[], History]) -> BuildResult:
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
    told = ToldLine(steps=built.steps, tree=history.tree)
    return Patch(changes=(told,), reason="brings artifacts up to date")


def _suites(built: Built, history: History) -> Iterator[SuiteOutcome]:
    """Without those that are lost, with the process that wrote them down."""
    for position in built.suites:
        event = history.event(position) if position < history.size else None
        if isinstance(event, SuiteOutcome):
            yield event
