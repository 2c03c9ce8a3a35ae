"""The record of a runtime, and the states that are stored of it, go on where its host is killed."""

from __future__ import annotations

from tests.adoption.conftest import Node, join, value
from tests.adoption.supervising import JAIL, NAME, stored

from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.hosted.runtime import HostedRuntime

COUNT = "import time\nfor i in range(40):\n    print(i)\n    time.sleep(0.01)\nx += 1\nx"


def stored_step(store: str) -> int:
    return CheckpointStore(store).manifest(NAME).state.message.step


def steps(runtime: HostedRuntime) -> list[tuple[int, str, str, str]]:
    line = runtime.history.tree.line(runtime.history.tree.head)
    return [(step.number, step.kind, step.code, step.cause) for step in line]


def test_no_step_is_missing(node: Node) -> None:
    """Killed with a cell under way: that is recorded with its code and cause, and stored before it is answered."""
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
    """An injection that the former host had not come to the end of, or had: once."""
    victim, keeping = node.victim(how="stored"), stored(node.folder / "store")
    victim.execute("x = 1", "a")
    victim.value("a")
    victim.tell("inject", "b", name="given", value=7, size=10)
    assert "DoneReply" == victim.value("b")
    victim.kill()
    runtime = node.adopt(keeping=keeping)
    assert "7" == value(runtime, "given[0]")
    assert ["cell", "injection", "cell"] == [kind for _, kind, _, _ in steps(runtime)]


def test_what_was_stored_is_served_without_its_jail(node: Node) -> None:
    """Everything died: another process goes on from the store, and knows which calls that has."""
    victim, keeping = node.victim(how="stored"), stored(node.folder / "store")
    victim.execute("x = 41", "a")
    victim.execute("x += 1", "b")
    assert victim.value("b") is None
    victim.kill()
    checkpoint = CheckpointStore(keeping.store).manifest(NAME)
    assert {"a": 1, "b": 2} == checkpoint.dealings.settled
    node.keeper.drop(JAIL)
    node.keeper.drop(f"runtime/{NAME}/journal")
    node.spare()
    runtime = node.begin(keeping)
    assert ("42", 3) == (value(runtime, "x"), runtime.step)
    assert [1, 2, 3] == [number for number, _, _, _ in steps(runtime)]
