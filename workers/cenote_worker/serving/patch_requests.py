"""What a client wants of a patch, a build or a rehearsal, read from its frame."""

from __future__ import annotations

import math

from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import UsageError
from cenote_security.printable import printable
from cenote_worker.content import Content
from cenote_worker.history.bounds import MAX_CAUSE
from cenote_worker.history.events import Declared
from cenote_worker.hosted.patching import BuildRequest, PatchRequest
from cenote_worker.hosted.rehearsal import RehearsalRequest
from cenote_worker.results import PatchedStep


def patch_request(message: runtime_pb2.Apply, content: Content) -> PatchRequest:
    """content: of the codes, as many as there are changed steps; taken over. Raises UsageError."""
    try:
        codes = [code_of(bytes(part)) for part in content.unpack()]
    finally:
        content.close()
    told = iter(codes)
    steps = tuple(
        PatchedStep(origin=step.origin, change=printable(step.change), code=next(told) if step.change else "")
        for step in message.steps
    )
    return PatchRequest(
        head=message.head,
        steps=steps,
        cause=message.cause[:MAX_CAUSE],
        atomic=not message.not_atomic,
        stop_on_failure=not message.goes_on,
        aside=message.aside,
        timeout=_seconds(message.step_seconds),
    )


def build_request(message: runtime_pb2.Build) -> BuildRequest:
    return BuildRequest(
        atomic=not message.not_atomic,
        stop_on_failure=not message.goes_on,
        aside=message.aside,
        timeout=_seconds(message.step_seconds),
        keep_failing=message.keep_failing,
        test_seconds=message.test_seconds,
    )


def declarations(message: runtime_pb2.Declare) -> tuple[Declared, ...]:
    """Their author is the owner: nobody else may."""
    return tuple(
        Declared(name=unit.name, kind=unit.kind, depends_on=tuple(unit.depends_on), dropped=unit.dropped)
        for unit in message.units
    )


def rehearsal_request(message: runtime_pb2.Rehearse, content: Content) -> RehearsalRequest:
    """content: the source, taken over. Raises UsageError."""
    return RehearsalRequest(
        source=one_code(content), steps=tuple(message.steps), name=message.name, seconds=message.seconds
    )


def one_code(content: Content) -> str:
    """Plain bytes, or one part. Takes the content over. Raises UsageError for what is no text."""
    try:
        if content.count > 1:
            raise UsageError("the code of a cell is one piece of text")
        return code_of(content.only_part() if content.count else content.whole())
    finally:
        content.close()


def code_of(data: bytes) -> str:
    """Raises UsageError for what is no text."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise UsageError("the code of a cell is not UTF-8") from None


def _seconds(told: float) -> float | None:
    """None for what is no length of time: the default holds then."""
    return told if 0 < told < math.inf else None
