"""The calls about parts of a state, as functions that wait for the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.waiting import PATIENCE

from cenote.runtime import PythonRuntime
from cenote_worker.execution.trace import Location, StepTrace, Version
from cenote_worker.runtime.recorder import WaitingListener
from cenote_worker.supervisor.frame_parser import DoneReply, RefusedReply, VersionsReply
from cenote_worker.supervisor.requests import Outcome


def ran(runtime: PythonRuntime, code: str) -> StepTrace:
    """The trace of a cell, which must succeed."""
    result = runtime.execute(code)
    assert result.success, result.error
    assert result.trace is not None
    return result.trace


def _answer(call: Callable[..., None], *arguments: Any) -> Outcome:
    delivery = WaitingListener()
    call(*arguments, delivery)
    return delivery.outcomes.get(timeout=PATIENCE)


def carry(runtime: PythonRuntime, step: int, *locations: Location) -> str:
    """The reason why nothing was carried; empty on success."""
    outcome = _answer(runtime.core.backend.rerunning().carry, step, locations)
    if isinstance(outcome, RefusedReply):
        return outcome.message
    assert isinstance(outcome, DoneReply), outcome
    return ""


def versions(runtime: PythonRuntime, *locations: Location) -> Mapping[Location, Version]:
    outcome = _answer(runtime.core.backend.rerunning().versions, locations)
    assert isinstance(outcome, VersionsReply), outcome
    return outcome.versions


def forget(runtime: PythonRuntime, *locations: Location) -> None:
    assert isinstance(_answer(runtime.core.backend.rerunning().forget, locations), DoneReply)


def load(runtime: PythonRuntime, *modules: str) -> None:
    assert isinstance(_answer(runtime.core.backend.rerunning().load, modules), DoneReply)
