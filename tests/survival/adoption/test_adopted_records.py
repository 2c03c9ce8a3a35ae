"""The record and the stored states of a runtime continue when its host is killed."""

from __future__ import annotations

import pytest
from tests.support.adoption.fixtures import Node, Victim, join, value
from tests.support.adoption.supervising import JAIL, NAME, replaced, stored

from cenote.runtime.replay.patcher import apply_patch
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.execution.results import Patched
from cenote_worker.runtime.patch_jobs import PatchWatch
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.transport.content import INLINE_LIMIT

COUNT = "import time\nfor i in range(40):\n    print(i)\n    time.sleep(0.01)\nx += 1\nx"


def stored_step(store: str) -> int:
    return CheckpointStore(store).manifest(NAME).state.message.step


def steps(runtime: HostedRuntime) -> list[tuple[int, str, str, str]]:
    line = runtime.history.tree.line(runtime.history.tree.head)
    return [(step.number, step.kind, step.code, step.cause) for step in line]


def test_no_step_is_missing(node: Node) -> None:
    """Killed during a cell: the cell is recorded with its code and cause, and stored before it is answered."""
    victim, keeping = node.victim(how="stored"), stored(node.folder / "store")
    victim.execute("x = 1", "a")
    assert victim.value("a") is None
    victim.execute(COUNT, "b")
    victim.heard("b", "3\n")
    victim.kill()
    runtime = node.adopt(keeping=keeping)
    assert 1 == stored_step(keeping.store)
    assert "2" == join(runtime, "b").result().value
    assert 2 == stored_step(keeping.store)
    assert [(1, "cell", "x = 1", "a model"), (2, "cell", COUNT, "a model")] == steps(runtime)


def test_a_change_without_code_is_recorded_too(node: Node) -> None:
    """An injection that the former host had not finished, or had: once."""
    victim, keeping = node.victim(how="stored"), stored(node.folder / "store")
    victim.execute("x = 1", "a")
    victim.value("a")
    victim.tell("inject", "b", name="given", value=7, size=10)
    assert "DoneReply" == victim.value("b")
    victim.kill()
    runtime = node.adopt(keeping=keeping)
    assert "7" == value(runtime, "given[0]")
    assert ["cell", "injection", "cell"] == [kind for _, kind, _, _ in steps(runtime)]


@pytest.mark.slow
def test_what_was_stored_is_served_without_its_jail(node: Node) -> None:
    """All processes died: another one continues from the store, and knows which calls the stored state has made."""
    victim, keeping = node.victim(how="stored"), stored(node.folder / "store")
    victim.execute("x = 41", "a")
    victim.execute("x += 1", "b")
    assert victim.value("b") is None
    victim.kill()
    checkpoint = CheckpointStore(keeping.store).manifest(NAME)
    assert {"a": 1, "b": 2} == checkpoint.dealings.settled
    node.descriptor_store.drop(JAIL)
    node.descriptor_store.drop(f"runtime/{NAME}/journal")
    node.spare()
    runtime = node.begin(keeping)
    assert ("42", 3) == (value(runtime, "x"), runtime.step)
    assert [1, 2, 3] == [number for number, _, _, _ in steps(runtime)]


def patch(node: Node, runtime: HostedRuntime, code: str) -> Patched:
    """Replaces the first step. A walk that learns something begins in one more jail."""
    spare(node)
    watch = PatchWatch(progress=lambda _: None, cancelled=lambda: False)
    return apply_patch(runtime, replaced(runtime, 1, code), watch)


def spare(node: Node) -> None:
    for _ in range(3):
        node.spare(snapshots=False)


def begun(node: Node, last: str) -> Victim:
    """A runtime that stores no states and received a value twice between its cells."""
    victim = node.victim(how="stored", snapshots=False)
    victim.execute("n = 1", "n")
    for number, code in enumerate(("a = given[0] + n", last)):
        victim.value("n" if number == 0 else "a = given[0] + n")
        victim.tell("inject", f"gift {number}", name="given", value=5 + number, size=INLINE_LIMIT)
        victim.value(f"gift {number}")
        victim.execute(code, code)
    victim.value(last)
    return victim


@pytest.mark.slow
def test_what_was_put_in_is_put_in_again(node: Node) -> None:
    """By another process than the one that received it; a replaced value too."""
    begun(node, "b = given[0] + n").kill()
    runtime = node.adopt(keeping=stored(node.folder / "store"))
    assert "applied" == patch(node, runtime, "n = 10").status
    assert "(15, 16)" == value(runtime, "a, b")


@pytest.mark.slow
def test_a_patch_that_was_killed_behind_it_has_never_been(node: Node) -> None:
    """The patch had put a value in again, into a second jail. The next patch does so and completes."""
    victim = begun(node, "import time\nwhile n == 10: time.sleep(0.01)\nb = given[0] + n")
    spare(node)
    victim.tell("patch", "begun", number=1, code="n = 10")
    victim.wait_for(lambda report: report["key"] == "begun" and report.get("before") == 5)
    victim.kill()
    runtime = node.adopt(keeping=stored(node.folder / "store"))
    assert "(6, 7)" == value(runtime, "a, b")
    assert "applied" == patch(node, runtime, "n = 20").status
    assert "(25, 26)" == value(runtime, "a, b")
