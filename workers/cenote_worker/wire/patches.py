"""The results of patches and builds as messages, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from cenote_proto.scalars import make
from cenote_proto.v1 import runtime_pb2
from cenote_security.printable import printable
from cenote_worker.execution.results import (
    BuildStatus,
    Built,
    Patched,
    PatchedStep,
    PatchRefusal,
    PatchStatus,
    UnmadeCall,
)

MAX_FACTS: Final = 10_000
"""Characters of all facts of a refusal together: they become part of an error's text."""

_STATUSES: Final[Mapping[PatchStatus, runtime_pb2.Applied.Status.ValueType]] = {
    "applied": runtime_pb2.Applied.APPLIED,
    "failed": runtime_pb2.Applied.FAILED,
    "blocked": runtime_pb2.Applied.BLOCKED,
    "cancelled": runtime_pb2.Applied.CANCELLED,
    "refused": runtime_pb2.Applied.REFUSED,
}
_STATUS_NAMES: Final = {number: name for name, number in _STATUSES.items()}


def from_patched(patched: Patched) -> runtime_pb2.Applied:
    message = make(
        runtime_pb2.Applied,
        status=_STATUSES[patched.status],
        head=patched.head,
        rerun=patched.rerun,
        reused=patched.reused,
        changed=patched.changed,
        cut_offs=patched.cut_offs,
        seconds_saved=patched.seconds_saved,
        records=patched.records,
        failure=patched.failure,
        aside=patched.aside,
        notes=patched.notes,
    )
    if (call := patched.blocked) is not None:
        unmade = make(
            runtime_pb2.UnmadeCall, target=call.target, method=call.method, arguments=call.arguments
        )
        message.blocked.CopyFrom(unmade)
    if patched.refusal is not None:
        message.refusal.CopyFrom(from_refusal(patched.refusal))
    return message


def to_patched(message: runtime_pb2.Applied) -> Patched:
    return Patched(
        status=_STATUS_NAMES.get(message.status, "refused"),
        head=message.head,
        rerun=tuple(message.rerun),
        reused=tuple(message.reused),
        changed=tuple(message.changed),
        cut_offs=tuple(message.cut_offs),
        seconds_saved=message.seconds_saved,
        records=tuple(message.records),
        failure=message.failure,
        blocked=_unmade(message.blocked) if message.HasField("blocked") else None,
        aside=message.aside,
        refusal=to_refusal(message.refusal) if message.HasField("refusal") else None,
        notes=tuple(printable(note[:MAX_FACTS]) for note in message.notes),
    )


def _unmade(message: runtime_pb2.UnmadeCall) -> UnmadeCall:
    return UnmadeCall(target=message.target, method=message.method, arguments=message.arguments)


def from_refusal(refusal: PatchRefusal) -> runtime_pb2.PatchRefusal:
    facts = [json.dumps(fact) for fact in refusal.facts]
    return make(runtime_pb2.PatchRefusal, kind=refusal.kind, facts=facts, message=refusal.message)


def to_refusal(message: runtime_pb2.PatchRefusal) -> PatchRefusal:
    """A refusal whose facts cannot be read counts as one of an unknown kind."""
    try:
        if sum(map(len, message.facts)) > MAX_FACTS:
            raise ValueError
        facts = tuple(json.loads(fact) for fact in message.facts)
    except (ValueError, RecursionError):
        return PatchRefusal(kind="", facts=(), message=printable(message.message[:MAX_FACTS]))
    return PatchRefusal(kind=message.kind, facts=facts, message=printable(message.message[:MAX_FACTS]))


_BUILD_STATUSES: Final[Mapping[BuildStatus | Literal["refused"], runtime_pb2.Built.Status.ValueType]] = {
    "built": runtime_pb2.Built.BUILT,
    "failed": runtime_pb2.Built.FAILED,
    "blocked": runtime_pb2.Built.BLOCKED,
    "cancelled": runtime_pb2.Built.CANCELLED,
    "refused": runtime_pb2.Built.REFUSED,
}
_BUILD_STATUS_NAMES: Final = {number: name for name, number in _BUILD_STATUSES.items()}


def from_built(built: Built) -> runtime_pb2.Built:
    message = make(
        runtime_pb2.Built,
        status=_BUILD_STATUSES[built.status],
        head=built.head,
        rebuilt=built.rebuilt,
        applied=from_patched(built.applied) if built.applied is not None else None,
        codes=[step.code.encode("utf-8", "surrogatepass") for step in built.steps if step.change],
        before=built.before,
        suites=built.suites,
        refusal=from_refusal(built.refusal) if built.refusal is not None else None,
    )
    for step in built.steps:
        make(message.steps.add, origin=step.origin, change=step.change)
    for name, reason in built.ran:
        make(message.ran.add, name=name, reason=reason)
    return message


def to_built(message: runtime_pb2.Built) -> Built:
    return Built(
        status=_BUILD_STATUS_NAMES.get(message.status, "refused"),
        head=message.head,
        rebuilt=tuple(message.rebuilt),
        applied=to_patched(message.applied) if message.HasField("applied") else None,
        steps=tuple(_steps(message)),
        before=message.before,
        suites=tuple(message.suites),
        ran=tuple((run.name, run.reason) for run in message.ran),
        refusal=to_refusal(message.refusal) if message.HasField("refusal") else None,
    )


def _steps(message: runtime_pb2.Built) -> Iterator[PatchedStep]:
    codes = iter(message.codes)
    for step in message.steps:
        code = next(codes, b"") if step.change else b""
        yield PatchedStep(origin=step.origin, change=step.change, code=code.decode("utf-8", "surrogatepass"))
