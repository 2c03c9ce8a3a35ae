"""Random walks of a runtime that stores each state and hibernates, which drops its states in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from tests.support.harness.programs import Choose
from tests.support.soundness.walk import AS_A_NOTEBOOK, Walk, given

from cenote.harness import ApplyResult, Patch, Plan
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy


class StoredWalk(Walk):
    """began: how often a patch was planned and applied from which base; noted: how often applied unlike planned."""

    def __init__(self, choose: Choose, store: Path | None) -> None:
        """store: None for a platform, which has its own."""
        self.began: Counter[str] = Counter()
        self.noted = 0
        self._stored = {"store": store, "name": "walk"} if store else {"name": f"walk-{token_hex(8)}"}
        super().__init__(choose)

    def _begun(self) -> PythonRuntime:
        return PythonRuntime(**self._stored, durable=True, **given(SandboxPolicy(preload=())))

    def _ways(self) -> list[Callable[[], None]]:
        return [
            *super()._ways(),
            self._sleep,
            self._sleep,
            self._store,
            self._store,
            self._patch,
            self._patch,
        ]

    def _patch(self) -> None:
        if self._choose(2):
            self._sleep()
        super()._patch()

    def _store(self) -> None:
        self._deeds.append("stores its state")
        self._runtime.checkpoint()

    def _sleep(self) -> None:
        self._deeds.append("sleeps")
        self._runtime.hibernate()

    def _planned_and_applied(self, patch: Patch) -> ApplyResult:
        plan: Plan = self._runtime.state.plan(patch)
        result = self._runtime.state.apply(plan, AS_A_NOTEBOOK)
        self.began[plan.strategy] += 1
        self.noted += bool(result.notes)
        if plan.strategy == "checkpoint" and not result.notes and result.status == "applied":
            before = {step.number for step in plan.steps[: plan.course.begin]}
            assert before.isdisjoint(result.steps_rerun), self._deeds
        return result
