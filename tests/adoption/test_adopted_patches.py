"""A patch whose process is killed in the middle has never been: its successor undoes it before anything else."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue

import pytest
from tests.adoption.conftest import Node, Victim, value
from tests.adoption.supervising import replaced
from tests.hosted.listening import Heard, NoHosts
from tests.waiting import PATIENCE

from cenote.runtime.patcher import apply_patch
from cenote_security.errors import OutcomeUnknownError
from cenote_worker.hosted.keyed_call import RequestKey
from cenote_worker.hosted.listeners import admit_all
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.results import Patched, SnapshotInfo
from cenote_worker.supervisor.host_line import HostCall, HostLine

CELLS = (
    "n, log = 1, []",
    "log.append(n); y = n",
    "import time\nwhile n > 1: time.sleep(0.01)\nz = y + n",
)
"""With another n the last one never ends."""


def ran(victim: Victim) -> None:
    for number, code in enumerate(CELLS, 1):
        victim.execute(code, str(number))
        victim.value(str(number))


def adopted_in_the_middle(node: Node) -> HostedRuntime:
    """After its supervising process was killed before the second of the two steps that a patch runs again."""
    victim = node.victim()
    ran(victim)
    victim.tell("patch", "p", number=1, code="n, log = 2, []")
    victim.wait_for(lambda report: report.get("before") == 3)
    victim.kill()
    return node.adopt()


def kept(runtime: HostedRuntime) -> set[int]:
    told: SimpleQueue[tuple[SnapshotInfo, ...] | None] = SimpleQueue()
    runtime.snapshots(told.put)
    return {info.step for info in told.get(timeout=PATIENCE) or ()}


def test_killed_in_the_middle(node: Node) -> None:
    """Names are as they were, no state halfway can be gone back to, and nobody knows of the patch."""
    runtime = adopted_in_the_middle(node)
    assert "(1, [1], 1, 2)" == value(runtime, "n, log, y, z")
    assert kept(runtime) <= {0, 1, 2, 3, runtime.step}
    with pytest.raises(OutcomeUnknownError):
        runtime.outcome("p", Heard())


class Called(NoHosts):
    """Notes what is called, and answers as if nothing were offered."""

    def __init__(self) -> None:
        self.targets: list[str] = []

    def call(self, line: HostLine, call: HostCall) -> None:
        self.targets.append(call.target)
        super().call(line, call)


def test_what_it_has_left_running_changes_nothing_outside(node: Node) -> None:
    """The step that the patch was running is stopped, and what it calls then is refused."""
    victim = node.victim()
    victim.tell("offer", "offer", name="send")
    victim.value("offer")
    stubborn = "import time\ntry:\n    while n > 1: time.sleep(0.01)\nexcept KeyboardInterrupt:\n    send()"
    for key, code in (("n", "n = 1"), ("stubborn", stubborn)):
        victim.execute(code, key)
        victim.value(key)
    victim.tell("patch", "p", number=1, code="n = 2")
    running = 0
    while running != 4:  # the patched step and the one that never ends have numbers behind the two that ran
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
    """Its outcome is there for its client, and its state for everybody."""
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
    """The successor applies patches of its own, to what it has a record of."""
    runtime = adopted_in_the_middle(node)
    assert "(1, 1)" == value(runtime, "n, y")
    value(runtime, "late = 1")
    heard = Heard()
    request = replaced(runtime, runtime.step, "late = 2")
    key = RequestKey(text="own")
    runtime.patches.apply(
        partial(apply_patch, runtime, request), heard, key, lambda _progress: None, admit_all
    )
    assert "Patched" == type(heard.outcome()).__name__
    assert "(1, 2)" == value(runtime, "n, late")
