"""Calls to actors of the cluster, where no cluster is needed for the test."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError

from cenote_security.errors import UnavailableError, UnknownRuntimeError
from cenote_worker.node.node import HostGone
from cenote_worker.node.ray.actor_calls import ActorLookup, ask, looked_up


def test_an_answer_that_says_no_is_an_answer() -> None:
    """Usage errors are ValueErrors, as is the error for a missing actor; only the latter is retried."""

    asked: list[str] = []

    def actor() -> object:
        asked.append("rt_1")
        raise UnknownRuntimeError("rt_1")

    with pytest.raises(UnknownRuntimeError):
        ask(actor, "runtime", "rt_1")
    assert ["rt_1"] == asked


def test_nobody_waits_for_an_actor_once_the_platform_ends() -> None:
    """Not even for one that Ray is about to restart."""
    ending, asked = threading.Event(), list[int]()

    def actor() -> object:
        asked.append(1)
        ending.set()
        raise ValueError("there is no such actor")

    with pytest.raises(UnavailableError, match="ended"):
        ask(actor, "runtime", "rt_1", ending=ending)
    assert [1] == asked


def test_an_actor_that_hangs_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause of the whole machine the first answer is late, and nothing hangs; then it counts as gone."""
    asked: list[int] = []
    late = [GetTimeoutError("late"), GetTimeoutError("late"), GetTimeoutError("late")]

    def get(reference: int, timeout: float) -> str:
        assert timeout == 2.0
        if reference <= len(late):
            raise late[reference - 1]
        return "facts"

    def look() -> Any:
        asked.append(1)
        return len(asked)

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(HostGone):
        looked_up(look, 2.0)
    assert "facts" == looked_up(look, 2.0)
    assert 4 == len(asked)


def test_an_actor_is_looked_up_again_after_a_failure_only() -> None:
    """Calls share one look-up until a call over it fails; one that finds no actor leaves nothing behind."""
    found: list[str] = []

    def look() -> str:
        if not found:
            found.append("")
            raise ValueError("there is no such actor")
        found.append(f"handle {len(found)}")
        return found[-1]

    lookup = ActorLookup(look)
    first = lookup.for_call()
    with pytest.raises(ValueError, match="no such"):
        first()
    assert "handle 1" == first()
    second = lookup.for_call()
    assert "handle 1" == second()
    assert "handle 2" == second()
    assert "handle 2" == lookup.for_call()()
