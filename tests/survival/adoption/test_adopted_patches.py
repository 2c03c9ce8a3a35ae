"""A patch whose process is killed in the middle has no effect: its successor undoes it first."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue

import pytest
from tests.support.adoption.fixtures import Node, Victim, value
from tests.support.adoption.supervising import JAIL, recorded, replaced
from tests.support.hosted.listening import Heard, NoHosts
from tests.waiting import PATIENCE

from cenote.runtime.replay.patcher import apply_patch
from cenote_security.errors import OutcomeUnknownError
from cenote_worker.execution.results import Patched, SnapshotInfo
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.recorder import admit_all
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.channels.host_calls import HostCall, HostCallChannel

CELLS = (
    "n, log = 1, []",
    "log.append(n); y = n",
    "import time\nwhile n > 1: time.sleep(0.01)\nz = y + n",
)
"""With another n the last one never ends."""

SECOND = JAIL.replace("/1", "/2")


def ran(victim: Victim) -> None:
    for number, code in enumerate(CELLS, 1):
        victim.execute(code, str(number))
        victim.value(str(number))


def adopted_in_the_middle(node: Node) -> HostedRuntime:
    """Adopted after its supervising process was killed before the second of the two steps that a patch runs again."""
    victim = node.victim()
    ran(victim)
    victim.tell("patch", "p", number=1, code="n, log = 2, []")
    victim.wait_for(lambda report: report.get("before") == 3)
    victim.kill()
    return node.adopt()


def patched(runtime: HostedRuntime, number: int, code: str) -> Patched:
    """Patched by its present process."""
    heard = Heard()
    work = partial(apply_patch, runtime, replaced(runtime, number, code))
    runtime.patches.apply(work, heard, RequestKey(text="own"), lambda _progress: None, admit_all)
    outcome = heard.outcome()
    assert isinstance(outcome, Patched)
    return outcome


def kept(runtime: HostedRuntime) -> set[int]:
    told: SimpleQueue[tuple[SnapshotInfo, ...] | None] = SimpleQueue()
    runtime.snapshots(told.put)
    return {info.step for info in told.get(timeout=PATIENCE) or ()}


def test_killed_in_the_middle(node: Node) -> None:
    """Names are unchanged, no intermediate state can be reached by a rollback, and the patch is unknown."""
    runtime = adopted_in_the_middle(node)
    assert "(1, [1], 1, 2)" == value(runtime, "n, log, y, z")
    assert kept(runtime) <= {0, 1, 2, 3, runtime.step}
    with pytest.raises(OutcomeUnknownError):
        runtime.outcome("p", Heard())


BESIDE = (
    "mine, log = object(), []; before = id(mine)",
    "log.append(1); n = len(log)",
    CELLS[2].replace("y + ", ""),
)
"""No states of it are stored, so a patch runs all of it in a second jail."""


def patched_beside(node: Node, number: int, code: str, dies: str = "") -> Victim:
    """A victim that stores no states, with the patch in progress or done. dies: see DyingFile."""
    victim = node.victim(snapshots=False, how="recorded", dies=dies)
    node.spare(snapshots=False)
    for key, cell in enumerate(BESIDE, 1):
        victim.execute(cell, str(key))
        victim.value(str(key))
    victim.tell("patch", "p", number=number, code=code)
    return victim


def test_killed_while_a_second_jail_runs_the_history_the_first_one_goes_on(node: Node) -> None:
    """With the same objects and the same head, and nothing remains of the second jail. It can be patched again."""
    victim = patched_beside(node, 2, "log.append(2); n = 2")
    victim.wait_for(lambda report: report.get("before") == 3)
    victim.kill()
    runtime = node.adopt(keeping=recorded(node.folder / "store"))
    assert 3 == runtime.history.tree.head
    assert "(True, [1], 1, 1)" == value(runtime, "id(mine) == before, log, n, z")
    assert [JAIL] == node.descriptor_store.keys(JAIL.rstrip("1"))
    node.spare(snapshots=False)
    assert "applied" == patched(runtime, 2, "log.append(3); n = 1").status
    assert "([3], 1, 1)" == value(runtime, "log, n, z")


@pytest.mark.sweep
@pytest.mark.parametrize(
    "dies",
    [
        *("before set_aside", "behind set_aside", "behind began 2"),
        *("before taken_back", "behind taken_back", "before settled p"),
    ],
)
def test_wherever_it_is_killed_the_state_is_that_before(node: Node, dies: str) -> None:
    """And the head, and only that one jail remains; whether the patch was about to fail or to succeed."""
    fails = "taken_back" in dies
    victim = patched_beside(node, 2, "n = None + 1" if fails else "log.append(2); n = 1", dies)
    victim.process.wait(PATIENCE)
    victim.kill()
    runtime = node.adopt(keeping=recorded(node.folder / "store"))
    assert 3 == runtime.history.tree.head
    assert "(True, [1], 1, 1)" == value(runtime, "id(mine) == before, log, n, z")
    assert [JAIL] == node.descriptor_store.keys(JAIL.rstrip("1"))


def test_killed_behind_its_outcome_it_stays(node: Node) -> None:
    """Though the waiting jail has not been ended, and no client was informed."""
    victim = patched_beside(node, 2, "log.append(2); n = 1", "behind settled p")
    victim.process.wait(PATIENCE)
    victim.kill()
    runtime = node.adopt(keeping=recorded(node.folder / "store"))
    heard = Heard()
    runtime.outcome("p", heard)
    assert "Patched" == type(heard.outcome()).__name__
    assert "([2], 1, 1)" == value(runtime, "log, n, z")
    assert [SECOND] == node.descriptor_store.keys(JAIL.rstrip("1"))


class Called(NoHosts):
    """Notes the calls, and answers as if no functions were offered."""

    def __init__(self) -> None:
        self.targets: list[str] = []

    def call(self, line: HostCallChannel, call: HostCall) -> None:
        self.targets.append(call.target)
        super().call(line, call)


@pytest.mark.slow
def test_what_it_has_left_running_changes_nothing_outside(node: Node) -> None:
    """The step that the patch was running is stopped, and its later calls are refused."""
    victim = node.victim()
    victim.tell("offer", "offer", name="send")
    victim.value("offer")
    stubborn = "import time\ntry:\n    while n > 1: time.sleep(0.01)\nexcept KeyboardInterrupt:\n    send()"
    for key, code in (("n", "n = 1"), ("stubborn", stubborn)):
        victim.execute(code, key)
        victim.value(key)
    victim.tell("patch", "p", number=1, code="n = 2")
    running = 0
    while running != 4:  # the patched step and the endless one have later numbers than the two that ran
        victim.tell("status", "status")
        running = victim.value("status")
    victim.kill()
    hosts = Called()
    runtime = node.adopt(hosts)
    assert "1" == value(runtime, "n")
    assert [] == hosts.targets
    listener = Heard()
    runtime.execute("send()", None, listener)
    assert ["send"] == (listener.result() and hosts.targets)


def test_a_patch_that_was_applied_stays(node: Node) -> None:
    """Its outcome is available to its client, and its state to all authors."""
    victim = node.victim()
    ran(victim)
    victim.tell("patch", "p", number=2, code="log.append(7); y = 7")
    assert "Patched" == victim.value("p")
    victim.kill()
    runtime = node.adopt()
    listener = Heard()
    runtime.outcome("p", listener)
    outcome = listener.outcome()
    assert isinstance(outcome, Patched)
    assert ("applied", (2, 3)) == (outcome.status, outcome.rerun)
    assert "(1, [7], 7, 8)" == value(runtime, "n, log, y, z")


def test_what_is_left_of_it_changes_nothing_later(node: Node) -> None:
    """The successor applies patches of its own to the steps that it has recorded."""
    runtime = adopted_in_the_middle(node)
    assert "(1, 1)" == value(runtime, "n, y")
    value(runtime, "late = 1")
    assert "applied" == patched(runtime, runtime.step, "late = 2").status
    assert "(1, 2)" == value(runtime, "n, late")
