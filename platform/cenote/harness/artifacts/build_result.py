"""What came of a build, for people, models and programs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cenote.harness.applying.apply import ApplyResult
from cenote.harness.patching.patch import Patch
from cenote_worker.execution.results import BuildStatus
from cenote_worker.history.events import RanTest
from cenote_worker.history.step import StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What came of building. Unless it is `built`, the state and the head are what they were before.

    head: the newest step of the history that is up to date. rebuilt: artifacts that were out of date, and are not.
    applied: of the steps that were run again; None when none had to be. patch: with which they were. before: the line
    that it was applied to.
    tests: of all suites, as they hold now. ran: those that were run, as `SUITE::TEST`, with the reason: `new`,
    `failed` (before), `unsteady`, or what the test uses that is different. spared: the others.
    """

    status: BuildStatus
    head: int
    rebuilt: tuple[str, ...] = ()
    applied: ApplyResult | None = None
    patch: Patch | None = None
    before: tuple[StepRecord, ...] = field(default=(), repr=False)
    tests: tuple[RanTest, ...] = ()
    ran: Mapping[str, str] = field(default_factory=dict)
    spared: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[RanTest, ...]:
        """Tests that did not pass."""
        return tuple(test for test in self.tests if test.outcome != "passed")

    def explain(self) -> str:
        """For people and models, a line each."""
        lines = [f"{self.status}: {', '.join(self.rebuilt) or 'nothing was out of date'}"]
        if self.applied is not None:
            again = len(self.applied.steps_rerun)
            lines.append(f"{again} step{'' if again == 1 else 's'} run again")
            if self.applied.failure is not None and self.applied.failure.error is not None:
                lines.append(f"step {self.applied.failure.number}: {self.applied.failure.error}")
            if self.applied.blocked is not None:
                lines.append(str(self.applied.blocked))
        if self.tests:
            lines.append(f"{len(self.ran)} of {len(self.tests)} tests run")
        for name, reason in self.ran.items():
            lines.append(f"{name}: run, since {_spoken(reason)}")
        for test in self.failures:
            where = f" ({test.file}, line {test.span[0]})" if test.span else ""
            lines.append(f"{test.name} {test.outcome}: {test.error_type}: {test.message}{where}")
        return "\n".join(lines)


def _spoken(reason: str) -> str:
    known = {
        "new": "it has not run before",
        "failed": "it did not pass before",
        "unsteady": "it may come out different each time",
    }
    kind, _, place = reason.partition(":")
    if kind == "code":
        path, _, function = place.rpartition(":")
        return f"`{function}` of {path} is different" if function != "<module>" else f"{path} is different"
    return known.get(reason) or f"`{place}` is different"
