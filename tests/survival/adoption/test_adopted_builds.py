"""A build whose process is killed in the middle is undone; a finished one remains for its client."""

from __future__ import annotations

from tests.support.adoption.fixtures import Node, Victim, value
from tests.support.hosted.listening import PATIENCE, Heard

from cenote_worker.execution.results import Built
from cenote_worker.runtime.scratch_runtime import Rehearsal, RehearsalRequest, put_in

CELLS = (
    "def rate(): return 1",
    "log = [rate()]",
    "import time\nwhile log[0] == 2: time.sleep(0.01)\ntotal = log[0] * 10",
)
"""With a rate of 2 the last one never ends."""

UNITS = [{"name": "rate", "kind": "function"}, {"name": "total", "kind": "dataset"}]


def ran(victim: Victim, *cells: str) -> None:
    for code in cells:
        victim.execute(code, code)
        victim.value(code)


def test_builds_of_a_process_that_is_killed(node: Node) -> None:
    """One was finished, another in progress. Injected values are known by their step, as before."""
    victim = node.victim()
    ran(victim, *CELLS, "def rate(): return 3")
    victim.tell("declare", "units", units=UNITS)
    assert "declared" == victim.value("units")
    victim.tell("build", "done")
    assert "Built" == victim.value("done")
    victim.tell("inject", "gift", name="gift", value=5, size=1)
    victim.value("gift")
    ran(victim, "def rate(): return 2")
    victim.tell("build", "begun")
    victim.wait_for(lambda report: report["key"] == "begun" and "`log`" in report.get("reason", ""))
    victim.kill()
    runtime, listener = node.adopt(), Heard()
    runtime.outcome("done", listener)
    outcome = listener.outcome()
    assert isinstance(outcome, Built)
    assert ("built", ("total",), 4) == (outcome.status, outcome.rebuilt, outcome.before)
    assert "([3], 30, 2)" == value(runtime, "log, total, rate()")
    assert {8: {"gift"}} == put_in(runtime)
    node.spare(snapshots=False)
    kept = sorted(node.descriptor_store.keys("runtime/"))
    rehearsal = Rehearsal(runtime, RehearsalRequest(source="x = 1", steps=(), name="x", seconds=PATIENCE))
    rehearsal.value().content.close()
    assert kept == sorted(node.descriptor_store.keys("runtime/")), (
        "the jail of a rehearsal is nobody's legacy"
    )
    rehearsal.close()
