"""The threads of a node's agent and of its nursery continue after an error."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable

import pytest

from cenote_worker.node.ray import agent as ray_agent
from cenote_worker.node.ray import host
from cenote_worker.node.ray.agent import NodeAgent
from cenote_worker.node.ray.host import NurseryActor


class Stumbling:
    """Replaces a Node, or a JailStarter: its first sweep fails unexpectedly, and the third ends the loop."""

    def __init__(self) -> None:
        self.sweeps = 0
        self.told: Counter[str] = Counter()

    def sweep(self) -> None:
        self.sweeps += 1
        if self.sweeps == 1:
            raise OSError(errno.EMFILE, "too many open files")
        if self.sweeps == 3:
            raise SystemExit

    def await_quiet(self) -> bool:
        raise OSError(errno.EMFILE, "too many open files")

    def not_hired(self) -> None:
        self.told["not hired"] += 1


def agent(node: Stumbling) -> NodeAgent:
    """An agent without Ray."""
    made = object.__new__(NodeAgent)
    made._node = node  # type: ignore[assignment]
    return made


def nursery(shelf: Stumbling) -> NurseryActor:
    made = object.__new__(NurseryActor)
    made._nursery = shelf  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("sweeper", [agent, nursery])
def test_sweeps_go_on(
    sweeper: Callable[[Stumbling], NodeAgent | NurseryActor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sweeps end runtimes whose lease is over, and release values that no client fetched."""
    for module in (ray_agent, host):
        monkeypatch.setattr(module, "SWEEP_SECONDS", 0.01)
    swept = Stumbling()
    with pytest.raises(SystemExit):
        sweeper(swept)._sweep()
    assert 3 == swept.sweeps


def test_a_host_that_is_not_asked_for_is_not_waited_for() -> None:
    """Whatever the error: no other host is requested while this one is expected."""
    node = Stumbling()
    agent(node)._hire_one()
    assert 1 == node.told["not hired"]
