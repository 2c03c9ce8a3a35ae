"""What a model is shown of a build: what was made again, and tests that do not pass."""

from __future__ import annotations

from cenote.agent import prompts
from cenote.agent.exchange import lines
from cenote.agent.observation import error_line
from cenote.agent.patch_report import ran_again
from cenote.harness.artifacts.build_result import BuildResult
from cenote_worker.history.events import RanTest

MAX_FAILURES = 5
"""Each has its line; who mends these finds the next."""


def build_report(result: BuildResult) -> str:
    """Empty if there was nothing to do."""
    return lines(_outcome(result), _tests(result), *map(_failure, result.failures[:MAX_FAILURES]))


def seconds_of(result: BuildResult) -> float:
    """That steps and tests took which were run."""
    records = ran_again(result.before, result.applied) if result.applied is not None else []
    steps = sum(record.duration for record in records)
    return steps + sum(test.seconds for test in result.tests if test.step == result.head)


def _outcome(result: BuildResult) -> str:
    applied = result.applied
    if result.status == "built":
        suites = {name.rpartition("::")[0] for name in (*result.ran, *result.spared)}
        made = [name for name in result.rebuilt if name not in suites]
        return prompts.REBUILT.format(names=", ".join(made)) if made else ""
    if applied is not None and applied.failure is not None and applied.failure.error is not None:
        failure = applied.failure
        error = error_line(applied.failure.error, failure.code)
        return prompts.BUILD_FAILED.format(number=failure.origin or failure.number, error=error)
    if applied is not None and applied.blocked is not None:
        return prompts.NOT_BUILT.format(reason=applied.blocked)
    return prompts.NOT_BUILT.format(reason="it was stopped") if result.status == "cancelled" else ""


def _tests(result: BuildResult) -> str:
    if not result.tests:
        return ""
    failed = len(result.failures)
    return prompts.TESTS_RUN.format(
        ran=len(result.ran),
        all=len(result.tests),
        failed=f"{failed} failed" if failed else "all pass",
    )


def _failure(test: RanTest) -> str:
    where = f" ({test.file}, line {test.span[0]})" if test.span else ""
    return f"{test.name}: {test.error_type}: {test.message}{where}"
