"""From a jail's replies to what a caller gets: values, references, descriptions, or the error to raise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cenote.harness.applying.apply import ApplyResult
from cenote.harness.artifacts.build_result import BuildResult
from cenote.runtime.inject.pickling_unsafe import load_trusted
from cenote.runtime.inject.references import ObjectReference
from cenote.runtime.replay.patch_client import built_of, result_of
from cenote_security.errors import JailError, JailLostError, MalformedValueError, UsageError
from cenote_security.values.decoder import class_table, load
from cenote_worker.execution.results import (
    Built,
    ExecutionResult,
    JailStatus,
    LiveOutput,
    Patched,
    Rollback,
    SnapshotInfo,
    VariableInfo,
)
from cenote_worker.history.history import History
from cenote_worker.runtime.jail_requests import as_error
from cenote_worker.supervisor.frame_parser import KeptReply, RefusedReply, ValueReply, VariablesReply
from cenote_worker.supervisor.requests import Outcome, SharedReply
from cenote_worker.transport.content import Content


def done(outcome: Outcome, name: str) -> Outcome:
    """The outcome, unless it is an error. `name` is what the request was about."""
    if isinstance(outcome, Exception):
        raise outcome
    if isinstance(outcome, RefusedReply):
        raise as_error(outcome, name)
    return outcome


def value(
    outcome: Outcome, name: str, known: Mapping[str, type], named: Iterable[type], *, trusted: bool
) -> Any:
    """The value of a variable, rebuilt."""
    content = _content(outcome, name)
    try:
        if isinstance(named, type) or not isinstance(named, Iterable):
            raise UsageError(f"classes is a list of classes, such as [Point], not {named!r:.100}")
        if trusted:
            return load_trusted(content)
        parts = content.unpack()
        if len(parts) != 2:
            raise MalformedValueError("a value without its header or its data")
        return load(bytes(parts[0]), parts[1], classes={**known, **class_table(named)})
    finally:
        content.close()


def reference(outcome: Outcome, name: str) -> ObjectReference:
    reply = done(outcome, name)
    if not isinstance(reply, SharedReply):
        raise JailError(f"the runtime shared no value for {name!r}")
    return ObjectReference(reply.holding, reply.info)


def result(outcome: Outcome) -> ExecutionResult:
    """The result of a cell. Raises what kept the request from being one."""
    if isinstance(outcome, ExecutionResult):
        return outcome
    if isinstance(outcome, Exception):
        raise outcome
    raise JailError("the runtime gave no result for a cell")


def status(answer: JailStatus | Exception | None) -> JailStatus:
    if answer is None:
        raise JailLostError("it ended before it could be asked")
    if isinstance(answer, Exception):
        raise answer
    return answer


def live_output(answer: LiveOutput | Exception) -> LiveOutput:
    if isinstance(answer, Exception):
        raise answer
    return answer


def snapshots(answer: tuple[SnapshotInfo, ...] | Exception | None) -> tuple[SnapshotInfo, ...]:
    if answer is None:
        raise JailLostError("it ended before it could be asked")
    if isinstance(answer, Exception):
        raise answer
    return answer


def snapshot(outcome: Outcome, label: str | None) -> SnapshotInfo:
    kept = done(outcome, "")
    if not isinstance(kept, KeptReply):
        raise JailError("the runtime did not say what it kept")
    return SnapshotInfo(step=kept.step, label=label or "")


def rollback(outcome: Outcome) -> Rollback:
    if isinstance(outcome, Exception):
        raise outcome
    if not isinstance(outcome, Rollback):
        raise JailError("the runtime did not say where it went back to")
    return outcome


def past(
    outcome: Outcome, history: Callable[[], History]
) -> ExecutionResult | ApplyResult | BuildResult | None:
    """What a call gave whose answer was lost: a cell, a patch or a build its result, others nothing. May block."""
    given = done(outcome, "")
    if isinstance(given, Built):
        return built_of(given, history())
    if isinstance(given, Patched):
        return result_of(given, history())
    return given if isinstance(given, ExecutionResult) else None


def variables(outcome: Outcome) -> list[VariableInfo]:
    reply = done(outcome, "")
    if not isinstance(reply, VariablesReply):
        raise JailError("the runtime described nothing")
    return list(reply.variables)


def _content(outcome: Outcome, name: str) -> Content:
    reply = done(outcome, name)
    if not isinstance(reply, ValueReply):
        raise JailError(f"the runtime gave no value for {name!r}")
    return reply.content
