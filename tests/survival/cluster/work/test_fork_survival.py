"""Forks on a platform whose runtime processes are killed: all branches, once, and nothing is left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill
from tests.waiting import until

import cenote
from cenote import PythonRuntime
from cenote_security.policy import SandboxPolicy

pytestmark = pytest.mark.long  # another Ray process takes ten seconds to start

SLOW = """
def made():
    import time
    time.sleep(0.5)
    return 5
class slow:
    def __reduce__(self):
        return made, ()
x, late = 13, slow()
"""
"""A value that takes half a second to be put into a branch."""


def test_killed_in_the_middle_of_a_fork(platform: StandingPlatform) -> None:
    """What was begun is ended; the client's next try creates the branches, on another process, by their parent."""
    policy, platform_here = SandboxPolicy(preload=()), cenote.connect(platform.address, platform.token)
    with ExitStack() as until_then, ThreadPoolExecutor(1) as pool:
        runtime = until_then.enter_context(
            PythonRuntime(address=platform.address, token=platform.token, sandbox=policy)
        )
        assert runtime.execute(SLOW).success
        before = set(_served(platform))
        forking = pool.submit(lambda: runtime.fork(count=2))
        until(lambda: len(_served(platform)) == len(before) + 2)
        kill(*platform.processes("ray::RuntimeActor"))
        branches = forking.result()
        assert isinstance(branches, list)
        for branch in branches:
            until_then.enter_context(branch)
            assert ("14", 2) == ((result := branch.execute("x + 1")).value, result.step)
        assert "13" == runtime.execute("x").value
        made = {info.id for info in platform_here.runtimes()}
        assert made == set(_served(platform))
        assert len(before) + 2 == len(made)
    until(lambda: len(_served(platform)) < len(before))


def _served(platform: StandingPlatform) -> list[str]:
    """Runtimes of which the node has any resource."""
    return [key.split("/")[1] for key in platform.kept("runtime/") if key.endswith("/assignment")]
