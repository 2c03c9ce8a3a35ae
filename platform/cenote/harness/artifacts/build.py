"""Brings artifacts up to date: makes again what was made from something older, and runs the tests that it
concerns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from cenote.harness.applying.apply import ApplyOptions, ApplyResult, apply_plan
from cenote.harness.artifacts.arrangement import Arrangement, arrangement
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.artifacts.declaration import Artifact, UnbuildableError
from cenote.harness.artifacts.staleness import Survey, tracked, units_of
from cenote.harness.artifacts.test_suites import ANSWER, SuiteRun, read, request
from cenote.harness.patching.errors import StateNotKeptError
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.forecast import make_plan
from cenote.harness.planning.plan import Plan
from cenote.harness.planning.replay_target import Ground
from cenote_worker.history.events import SuiteOutcome
from cenote_worker.history.history import History


class BuildSandbox(Protocol):
    """Of one runtime."""

    def note(self, outcome: SuiteOutcome) -> None:
        """Notes what came of a suite."""

    def beside(self, code: str, name: str) -> object:
        """Runs code on the live state, and takes back all that it has done there: variables, files, the head.

        Gives what a variable had then, as plain data. The code may not change anything outside.
        Raises StateNotKeptError, and runs nothing, where the state could not be had back; UnavailableError for code
        that did not come to its end.
        """


MAX_SOURCE = 2**20
"""Characters of a file that is written into a history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How artifacts are built. apply: how the steps are run again. keep_failing: do not take back what was made again
    when a test does not pass. test_seconds: for all tests together.
    """

    apply: ApplyOptions = field(default_factory=ApplyOptions)
    keep_failing: bool = False
    test_seconds: float = 300.0


class Builder:
    """Builds the artifacts of one runtime, once."""

    def __init__(self, history: History, ground: Ground, bench: BuildSandbox, options: BuildOptions) -> None:
        self._history = history
        self._ground = ground
        self._bench = bench
        self._options = options

    def build(self, artifacts: Mapping[str, Artifact]) -> BuildResult:
        """All of the artifacts. What was made is kept for longer than other states.

        Raises UnbuildableError, StateNotKeptError, StepNotRepeatedError, SecurityError; nothing has changed then.
        """
        if not self._ground.keep():
            raise StateNotKeptError
        with self._ground.holding():
            return self._built(artifacts)

    def _built(self, artifacts: Mapping[str, Artifact]) -> BuildResult:
        head = self._history.tree.head
        survey = self._survey(artifacts)
        stale = {each.name for each in tracked(survey, self._history.suites) if each.stale}
        needed = arrangement(survey)
        plan = self._plan(needed)
        applied = apply_plan(plan, self._ground, self._options.apply) if plan is not None else None
        if applied is not None and applied.status != "applied":
            return BuildResult(status=applied.status, head=head, applied=applied)
        try:
            needed.check(survey, applied.records if applied is not None else ())
            runs = self._test(artifacts)
        except BaseException:
            self._back(head)
            raise
        result = self._result(applied, plan, runs, stale)
        if result.failures and not self._options.keep_failing:
            self._back(head)
            return replace(result, status="failed", head=head, rebuilt=())
        if plan is not None:
            self._ground.keep()
        return result

    def _survey(self, artifacts: Mapping[str, Artifact]) -> Survey:
        tree = self._history.tree
        return Survey(tree.line(tree.head), artifacts)

    def _plan(self, needed: Arrangement) -> Plan | None:
        if needed.empty:
            return None
        contents = {name: self._content(name) for name in needed.unread}
        patch = Patch(changes=(needed.change(contents),), reason="brings artifacts up to date")
        tree = self._history.tree
        kept, stored = self._ground.kept(), self._ground.stored()
        return make_plan(
            patch,
            tree.line(tree.head),
            kept,
            stored,
            begun=self._history.begun,
            environments=self._history.environments,
        )

    def _content(self, path: str) -> str:
        """Of a file, as the jail says."""
        code = (
            f"with open({path!r}, encoding='utf-8', newline='') as {ANSWER}:\n    {ANSWER} = {ANSWER}.read()"
        )
        found = self._bench.beside(code, ANSWER)
        if not isinstance(found, str) or len(found) > MAX_SOURCE:
            raise UnbuildableError(
                path, "it is no text, or too long a one; write it in the step that uses it first"
            )
        return found

    def _test(self, artifacts: Mapping[str, Artifact]) -> tuple[SuiteRun, ...]:
        suites = [artifact for artifact in artifacts.values() if artifact.kind == "tests"]
        if not suites:
            return ()
        former, head = self._history.suites, self._history.tree.head
        code = request(suites, former, self._options.test_seconds)
        runs = read(self._bench.beside(code, ANSWER), suites, former, head)
        survey = self._survey(artifacts)
        for run in runs:
            units = units_of(survey, run.tests, run.suite.name)
            self._bench.note(SuiteOutcome(suite=run.suite.name, step=head, tests=run.tests, units=units))
        return runs

    def _result(
        self, applied: ApplyResult | None, plan: Plan | None, runs: Sequence[SuiteRun], stale: Collection[str]
    ) -> BuildResult:
        names = [(run, test) for run in runs for test in run.tests]
        return BuildResult(
            status="built",
            head=self._history.tree.head,
            rebuilt=tuple(sorted(stale)),
            applied=applied,
            patch=plan.patch if plan is not None else None,
            before=plan.course.records if plan is not None else (),
            tests=tuple(test for _, test in names),
            ran={f"{run.suite.name}::{name}": reason for run in runs for name, reason in run.ran.items()},
            spared=tuple(f"{run.suite.name}::{test.name}" for run, test in names if test.name not in run.ran),
        )

    def _back(self, head: int) -> None:
        if self._history.tree.head != head:
            self._ground.rollback(head)
