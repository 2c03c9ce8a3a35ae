"""Forks of jails that delay on purpose: the host waits no longer than its timeout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from tests.support.hosted.listening import Heard, NoHosts

from cenote_security.errors import UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import CheckpointRefusedError, IncompleteForkError
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.branches import ForkOrder, copied, temporary_rollback

POLICY = SandboxPolicy(preload=())
PATIENCE = 1.0
ENOUGH = 60.0
"""Seconds in which everything must end, where the code would take ten minutes."""


@pytest.fixture
def runtime() -> Iterator[HostedRuntime]:
    runtime = HostedRuntime(POLICY, NoHosts())
    yield runtime
    runtime.close()


def run(runtime: HostedRuntime, code: str) -> str | None:
    heard = Heard()
    runtime.execute(code, None, heard)
    result = heard.result()
    assert result.success, result.error
    return result.value


def slow(when: str) -> str:
    """A variable that takes ten minutes to be pickled, or to be put into a branch."""
    wait = "__import__('time').sleep(600)"
    if when == "copied":
        return f"class Slow:\n    def __reduce__(self): {wait}\nx, slow = 1, Slow()"
    reduced = f"(eval, ({wait!r},))"
    return f"class Slow:\n    def __reduce__(self): return {reduced}\nx, slow = 1, Slow()"


@pytest.mark.usefixtures("by_value")
@pytest.mark.slow
def test_a_copy_that_stalls_is_given_up(runtime: HostedRuntime) -> None:
    """The source continues, whichever state was copied."""
    run(runtime, slow("copied"))
    run(runtime, "x = 2; del slow")
    began = time.monotonic()
    with pytest.raises(CheckpointRefusedError), copied(runtime, ForkOrder(at=1, patience=PATIENCE)):
        pass
    assert "2" == run(runtime, "x")
    assert time.monotonic() - began < ENOUGH


@pytest.mark.usefixtures("by_value")
@pytest.mark.slow
def test_a_branch_that_stalls_is_ended(runtime: HostedRuntime) -> None:
    """Only its jail ends."""
    run(runtime, slow("put"))
    began = time.monotonic()
    for patience in (PATIENCE, 10 * PATIENCE, 40 * PATIENCE):  # where the copy is slow, with a longer timeout
        with suppress(CheckpointRefusedError), copied(runtime, ForkOrder(patience=patience)) as copy:
            branch = copy.runtime(NoHosts())
            with pytest.raises(IncompleteForkError, match="KeyboardInterrupt") as stalled:
                branch.start()
            branch.close()
            break
    assert stalled
    assert "1" == run(runtime, "x")
    assert time.monotonic() - began < ENOUGH


@pytest.mark.parametrize("step", [7, 2**62])
def test_a_step_that_was_never_taken_is_not_believed(runtime: HostedRuntime, step: int) -> None:
    """The branch counts on from the source's known step, and its fork point is a step of both."""
    run(
        runtime,
        f"import gc\nfor one in gc.get_objects():\n    if hasattr(one, '_writers'): one._step = {step}",
    )
    with copied(runtime, ForkOrder()) as copy:
        branch = copy.runtime(NoHosts())
        branch.start()
        assert 1 == copy.point.step
    assert "2" == run(branch, "1 + 1")
    assert 2 == branch.history.tree.last
    branch.close()


def test_a_step_behind_which_nothing_can_be_counted_ends_the_fork(runtime: HostedRuntime) -> None:
    """The next number would fit no message."""
    run(
        runtime,
        "import gc\nfor one in gc.get_objects():\n    if hasattr(one, '_writers'): one._step = 2**64 - 1",
    )
    with pytest.raises(CheckpointRefusedError, match="more steps"), copied(runtime, ForkOrder()):
        pass


@pytest.mark.slow
def test_a_runtime_that_works_is_not_visited(runtime: HostedRuntime) -> None:
    """A running cell is neither waited for nor disturbed; requests sent during a visit follow it."""
    run(runtime, "x = 1")
    run(runtime, "x = 2")
    heard = Heard()
    runtime.execute("import time\nwhile x: time.sleep(0.01)", None, heard)
    with pytest.raises(UnavailableError, match="under way"), temporary_rollback(runtime, 1):
        pass
    runtime.interrupt()
    heard.result()
    with ThreadPoolExecutor(1) as pool:
        with temporary_rollback(runtime, 1):
            later = pool.submit(run, runtime, "x")
            with copied(runtime, ForkOrder()) as copy:
                branch = copy.runtime(NoHosts())
                branch.start()
        assert ("1", "2") == (run(branch, "x"), later.result())
        branch.close()
    assert [1, 2, 3, 4] == [step.number for step in runtime.history.tree.line(runtime.history.tree.head)]
