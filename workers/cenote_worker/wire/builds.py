"""Builds as messages and back: what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from cenote_proto.scalars import make
from cenote_proto.v1 import runtime_pb2
from cenote_worker.results import BuildStatus, Built, PatchedStep
from cenote_worker.wire.patches import from_patched, from_refusal, to_patched, to_refusal

_STATUSES: Final[Mapping[BuildStatus | Literal["refused"], runtime_pb2.Built.Status.ValueType]] = {
    "built": runtime_pb2.Built.BUILT,
    "failed": runtime_pb2.Built.FAILED,
    "blocked": runtime_pb2.Built.BLOCKED,
    "cancelled": runtime_pb2.Built.CANCELLED,
    "refused": runtime_pb2.Built.REFUSED,
}
_STATUS_NAMES: Final = {number: name for name, number in _STATUSES.items()}


def from_built(built: Built) -> runtime_pb2.Built:
    message = make(
        runtime_pb2.Built,
        status=_STATUSES[built.status],
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
        status=_STATUS_NAMES.get(message.status, "refused"),
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
