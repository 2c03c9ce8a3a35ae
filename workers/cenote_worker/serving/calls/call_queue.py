"""The calls of one stream, carried out in order of arrival, while there is room for their answers; and the frames of
those answers.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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
from cenote_worker.serving.limits import MAX_CARRIED, MAX_IN_FLIGHT
from cenote_worker.serving.listeners import CellListener
from cenote_worker.serving.references import ReferenceRecord
from cenote_worker.serving.served_runtime import ServedRuntime
from cenote_worker.supervisor.frame_parser import ExecutedReply, FileReply, ValueReply
from cenote_worker.supervisor.requests import Outcome, SharedReply, Withdraw
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


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedCall:
    """A call that its runtime has not answered.

    number: the client's number. key: identifies a call that is sent again; cells and patches always have one.
    run: sends it to the runtime; a return value is the answer already. It blocks where there is no jail yet.
    at_once: does not wait for other calls. blocks: whether running it now blocks in any case; asked right before.
    carries: its answer may be as large as the policy allows.
    dispose: releases what it owns, if it is never run. cell: the listener of a cell.
    """

    number: int
    key: str = ""
    run: Callable[[], runtime_pb2.ServerFrame | None]
    at_once: bool = False
    blocks: Callable[[], bool] = lambda: False
    carries: bool = False
    dispose: Callable[[], None] | None = None
    cell: CellListener | None = None
    withdraw: Withdraw | None = None
    """Set when a cell or a patch has been sent."""
    withdrawn: bool = False
    """The client wants no answer any more."""
    settled: bool = False
    """The runtime has answered."""

    def drop(self) -> None:
        """Disposes of a call that is never run."""
        if self.dispose is not None:
            self.dispose()


def unnamed_key() -> str:
    """A key for a call that needs one and came without."""
    return f"unnamed {secrets.token_hex(8)}"


CallResult = Callable[[], runtime_pb2.ServerFrame | None]
"""Gives the result of running a call, or raises its error."""


class CallQueue:
    """On the server's loop only. A call that may block goes to a thread, and the calls after it wait."""

    def __init__(
        self, served: ServedRuntime, full: Callable[[], bool], sent: Callable[[QueuedCall, CallResult], None]
    ) -> None:
        """full: whether the client is slow to take its answers. sent: called when a call has been run."""
        self._served = served
        self._full = full
        self._sent = sent
        self._waiting: deque[QueuedCall] = deque()
        self._busy = False
        """Whether a call of the queue is being run on a thread."""
        self._in_flight = 0
        self._carried = 0
        """Number of calls for values and files between the request and the last chunk."""

    def add(self, call: QueuedCall) -> None:
        if call.at_once and not self._served.held:
            self._run(call)
        else:
            self._waiting.append(call)
            self.go_on()

    def go_on(self) -> None:
        """Runs waiting calls while there is room."""
        while self._waiting and not self._busy and self._has_room(self._waiting[0]):
            self._run(self._waiting.popleft())

    def take_back(self, call: QueuedCall) -> bool:
        """Withdraws a waiting call, so that it is never run. Whether it was still waiting."""
        if call not in self._waiting:
            return False
        self._waiting.remove(call)
        call.drop()
        return True

    def answered(self, call: QueuedCall, *, carrying: bool = False) -> None:
        """The runtime is done with the call. carrying: the content of its answer is yet to be sent; see `carried`."""
        self._in_flight -= 1
        if call.carries and not carrying:
            self._carried -= 1
        self.go_on()

    def carried(self) -> None:
        """The content of an answer has been sent, or is not sent any more."""
        self._carried -= 1
        self.go_on()

    def close(self) -> None:
        """Disposes of the waiting calls."""
        waiting, self._waiting = list(self._waiting), deque()
        for call in waiting:
            call.drop()

    def _has_room(self, call: QueuedCall) -> bool:
        if self._served.held or self._full() or self._in_flight >= MAX_IN_FLIGHT:
            return False
        return not call.carries or self._carried < MAX_CARRIED

    def _run(self, call: QueuedCall) -> None:
        self._in_flight += 1
        self._carried += call.carries
        with self._served.at_hand() as ready:
            if ready and not call.blocks():
                self._sent(call, call.run)
                return
        self._busy = self._busy or not call.at_once
        self._served.start(call.run, partial(self._run_apart, call), at_once=call.at_once)

    def _run_apart(self, call: QueuedCall, future: asyncio.Future[runtime_pb2.ServerFrame | None]) -> None:
        self._busy = self._busy and call.at_once
        self._sent(call, future.result)
        self.go_on()
