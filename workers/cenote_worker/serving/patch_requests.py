"""What a client wants of a patch, read from its frame."""

from __future__ import annotations

from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import UsageError
from cenote_worker.content import Content
from cenote_worker.history.bounds import MAX_CAUSE
from cenote_worker.hosted.patching import PatchedStep, PatchRequest
from cenote_worker.results import printable


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
    )


def code_of(data: bytes) -> str:
    """Raises UsageError for what is no text."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise UsageError("the code of a cell is not UTF-8") from None
