"""What happens on a machine that comes back: only runtimes that no client can name any more are ended there."""

from __future__ import annotations

import threading

import pytest

from cenote.gateway.machines.ray_nodes import RayNodes
from cenote_security.errors import UnavailableError, UnknownRuntimeError
from cenote_security.ids import RuntimeId

HERE, DELETED, MOVED, ENDED = map(RuntimeId, ("here", "deleted", "moved", "ended"))


class Machines(RayNodes):
    """Nodes without Ray. agents: by machine, what stands for its agent."""

    def __init__(self) -> None:
        self.agents = {"near": "first", "far": "first"}
        self.ended: list[tuple[str, str]] = []
        self.silent = False
        super().__init__(None, lambda: self.agents, lambda _node: False, threading.Event())  # type: ignore[arg-type]
        self._homes = {HERE: "far", MOVED: "near"}

    def _ask(self, node: str, what: str, *arguments: object) -> object:
        if self.silent:
            raise UnavailableError("it does not answer")
        if what == "kept":
            return {HERE, DELETED, MOVED, ENDED}
        assert what == "end"
        if arguments == (ENDED,):
            raise UnknownRuntimeError(ENDED)
        self.ended += [(node, str(each)) for each in arguments]
        return None


def on_record() -> list[RuntimeId]:
    return [HERE, MOVED]


def test_a_machine_that_was_away() -> None:
    """Once: it was cleared then. A machine that was never seen before may belong to another gateway."""
    machines = Machines()
    machines.clear(on_record)
    assert [] == machines.ended
    machines.agents["far"] = "second"
    machines.clear(on_record)
    assert {("far", DELETED), ("far", MOVED)} == set(machines.ended)
    machines.clear(on_record)
    assert 2 == len(machines.ended)


def test_one_that_does_not_answer_yet() -> None:
    """It is cleared the next time."""
    machines = Machines()
    machines.clear(on_record)
    machines.agents["far"], machines.silent = "second", True
    with pytest.raises(UnavailableError):
        machines.clear(on_record)
    machines.silent = False
    machines.clear(on_record)
    assert 2 == len(machines.ended)


def test_a_home_that_is_away_itself() -> None:
    """A runtime whose home is away stays: no machine has newer information."""
    machines = Machines()
    machines.clear(on_record)
    machines.agents = {"far": "second"}
    machines.clear(on_record)
    assert [("far", DELETED)] == machines.ended
