"""What is asked of actors of the cluster, where no cluster is needed to see it."""

from __future__ import annotations

import threading

import pytest

from cenote_security.errors import UnavailableError, UnknownRuntimeError
from cenote_worker.cluster.ray_calls import ask


def test_an_answer_that_says_no_is_an_answer() -> None:
    """Errors of usage are ValueErrors, as is that for an actor that is not there; only the latter is asked again."""

    asked: list[str] = []

    def actor() -> object:
        asked.append("rt_1")
        raise UnknownRuntimeError("rt_1")

    with pytest.raises(UnknownRuntimeError):
        ask(actor, "runtime", "rt_1")
    assert ["rt_1"] == asked


def test_nobody_waits_for_an_actor_once_the_platform_ends() -> None:
    """Not even for one that Ray is to start again."""
    ending, asked = threading.Event(), list[int]()

    def actor() -> object:
        asked.append(1)
        ending.set()
        raise ValueError("there is no such actor")

    with pytest.raises(UnavailableError, match="ended"):
        ask(actor, "runtime", "rt_1", ending=ending)
    assert [1] == asked
