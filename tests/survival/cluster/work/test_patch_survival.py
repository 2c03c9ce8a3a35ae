"""Patches on a platform whose runtime processes are killed: applied, or without effect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill

from cenote import PythonRuntime
from cenote.harness import ApplyOptions, Patch, Progress
from cenote_security.policy import SandboxPolicy

SLOW = "import time\nfor _ in range(10 * (n > 2)): time.sleep(0.1)\nm = n"


@pytest.fixture(params=["auto", "none"])
def runtime(platform: StandingPlatform, request: pytest.FixtureRequest) -> Iterator[PythonRuntime]:
    """Without snapshots a patch runs in a second jail, and the first one waits."""
    policy = SandboxPolicy(preload=(), snapshots=request.param)
    with PythonRuntime(address=platform.address, token=platform.token, sandbox=policy) as runtime:
        assert runtime.execute("n = 1").success
        assert runtime.execute(SLOW).success
        yield runtime


@pytest.mark.slow
def test_killed_in_the_middle_of_a_patch(platform: StandingPlatform, runtime: PythonRuntime) -> None:
    """One was applied and stays; the next is undone by the process that takes the runtime over, and applied there
    again."""
    state = runtime.state
    assert "applied" == state.apply(state.plan(Patch.replace_step(1, "n = 2"))).status
    first, slow = (step.number for step in state.steps)
    victims = [platform.processes("ray::RuntimeActor")]

    def begun(progress: Progress) -> None:
        if progress.number == slow and victims:
            kill(*victims.pop())

    plan = state.plan(Patch.replace_step(first, "n = 3"))
    assert "applied" == state.apply(plan, ApplyOptions(progress=begun)).status
    assert not victims
    assert "(3, 3)" == runtime.execute("n, m").value
