"""The answers sent to a client for the outcomes of its calls."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import CenoteError, UnavailableError
from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.checkpoints.store import CheckpointInfo
from cenote_worker.execution.results import (
    Built,
    ExecutionResult,
    JailStatus,
    LiveOutput,
    Patched,
    RanInFull,
    Rollback,
    SnapshotInfo,
)
from cenote_worker.serving.references import ReferenceRecord
from cenote_worker.supervisor.frame_parser import ExecutedReply, FileReply, ValueReply
from cenote_worker.supervisor.requests import Outcome, SharedReply
from cenote_worker.transport.content import Content
from cenote_worker.wire.failures import to_failure
from cenote_worker.wire.patches import from_built, from_patched
from cenote_worker.wire.replies import from_checkpoint, from_reply, from_rollback, from_snapshots
from cenote_worker.wire.results import from_info, from_live_output, from_result, from_status

_log = logging.getLogger("cenote.serving")

Frame = runtime_pb2.ServerFrame


Answer = Outcome | JailStatus | LiveOutput | tuple[SnapshotInfo, ...] | CheckpointInfo
"""The outcome of a request; a warden's answer: the jail's status, its snapshots; output of the running
cell; a stored checkpoint."""


NOWHERE: Final[Mapping[str, object]] = MappingProxyType({})


def answer(call: int, outcome: Answer, about: Mapping[str, object] = NOWHERE) -> tuple[Frame, Content | None]:
    """The frame, and the content that has to follow it; the sender closes the content. about: see `failure`."""
    match outcome:
        case tuple():
            return Frame(call=call, snapshots=from_snapshots(outcome)), None
        case Rollback():
            return Frame(call=call, rolled_back=from_rollback(outcome)), None
        case JailStatus():
            return Frame(call=call, status=from_status(outcome)), None
        case LiveOutput():
            return Frame(call=call, status=from_live_output(outcome)), None
        case CheckpointInfo():
            return Frame(call=call, state_stored=from_checkpoint(outcome)), None
        case Patched():
            return Frame(call=call, applied=from_patched(outcome)), None
        case Built():
            return Frame(call=call, built=from_built(outcome)), None
        case RanInFull():
            return Frame(call=call, ran_in_full=runtime_pb2.RanInFull(steps=outcome.steps)), None
        case ExecutionResult():
            return Frame(call=call, result=from_result(outcome)), None
        case NotDurableError(outcome=ExecutionResult() as result):
            frame = Frame(call=call, result=from_result(result))
            frame.result.not_durable = utf8_text(outcome.reason)
            return frame, None
        case NotDurableError():
            return failure(call, NotDurableError(None, outcome.reason), about), None
        case Exception():
            return failure(call, outcome, about), None
        case ExecutedReply() | SharedReply():
            odd = TypeError(f"an answer that is no answer: {type(outcome).__name__}")
            return failure(call, odd, about), None
    reply, content = from_reply(outcome)
    return Frame(call=call, reply=reply), content


def shared(call: int, record: ReferenceRecord) -> Frame:
    told = make(runtime_pb2.Shared, reference=record.id, info=from_info(record.info), size=record.size)
    return Frame(call=call, shared=told)


def failure(call: int, error: Exception, about: Mapping[str, object] = NOWHERE) -> Frame:
    """The error as a frame; of an internal error, only that there was one. about: what the log's line is about:
    `runtime`, `tenant`, `step`.
    """
    if isinstance(error, OSError):
        error = UnavailableError(f"the server cannot have what this takes: {error}")
    if not isinstance(error, CenoteError):
        _log.error("a call failed", exc_info=error, extra=dict(about))
        error = CenoteError("the server failed at this call; its log says how")
    return Frame(call=call, failure=to_failure(error))


def discard(outcome: Answer) -> None:
    """Closes an outcome that has no receiver."""
    if isinstance(outcome, ValueReply | FileReply):
        outcome.content.close()
