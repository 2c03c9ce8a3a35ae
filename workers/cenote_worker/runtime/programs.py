"""Programs beside a namespace as its runtime manages them: admitted, accounted, recorded as steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cenote_security.errors import CenoteError
from cenote_worker.execution.programs import KeptOutput, ProgramEnd, ProgramOrder
from cenote_worker.execution.results import CellUsage, ErrorInfo, ExecutionResult, StreamName
from cenote_worker.history.step import StepRecord
from cenote_worker.process.threads import begin_thread
from cenote_worker.runtime.recorder import UsageEntry
from cenote_worker.supervisor.program import ProgramHandle, ProgramListener
from cenote_worker.supervisor.requests import AuthorSession, Outcome

if TYPE_CHECKING:
    from cenote_worker.runtime.runtime import HostedRuntime
    from cenote_worker.supervisor.supervisor import Supervisor

RECORDED: Final = 32 * 1024
"""Bytes of each stream of a program that its step contains."""

WRITING_SECONDS: Final = 1.0
"""Seconds by which the report of a program's end may wait for its step. It takes a millisecond where no cell runs."""


def begin_program(
    runtime: HostedRuntime,
    order: ProgramOrder,
    listener: ProgramListener,
    seat: AuthorSession,
    entry: UsageEntry | None,
) -> ProgramHandle:
    """See HostedRuntime.begin."""
    with runtime.turn:
        runtime.check_open()
        if not order.shown:
            return runtime.started(seat).programs.begin(order, listener)
        runtime.history.check_room(order.shown)
        supervisor = runtime.started(seat)
        if entry is not None:
            entry.admit()
        record = _step(order, runtime.new_step(), seat)
        watched = _Watched(listener, record, seat, runtime, supervisor, entry)
        try:
            return supervisor.programs.begin(order, watched)
        except CenoteError as error:
            if entry is not None:
                entry.ended(error)
            raise


class _Watched:
    """Passes events on; has the end of the program recorded first.

    So requests that the listener makes then come after the step. A running cell, or a namespace that does not answer,
    is not waited for: then the step is recorded when its turn comes.
    """

    def __init__(
        self,
        listener: ProgramListener,
        record: StepRecord,
        seat: AuthorSession,
        runtime: HostedRuntime,
        supervisor: Supervisor,
        entry: UsageEntry | None,
    ) -> None:
        self._listener = listener
        self._record = record
        self._seat = seat
        self._runtime = runtime
        self._supervisor = supervisor
        self._entry = entry
        self._outcome: ProgramEnd | Exception | None = None
        self._lock = threading.Lock()
        self._kept: dict[StreamName, KeptOutput] = {
            "stdout": KeptOutput(RECORDED),
            "stderr": KeptOutput(RECORDED),
        }

    def started(self, pid: int) -> None:
        self._listener.started(pid)

    def output(self, stream: StreamName, data: bytes) -> bool:
        self._kept[stream].add(data)
        return self._listener.output(stream, data)

    def ended(self, outcome: ProgramEnd | Exception) -> None:
        self._outcome = outcome
        self._record = _ended(self._record, outcome, self._kept)
        try:
            if self._entry is not None:
                self._entry.ended(_as_cell(self._record))
            # The turn is mostly free. A thread that has it for long may wait for this one, which must not wait then.
            if self._runtime.turn.acquire(blocking=False):
                try:
                    self._write_down()
                finally:
                    self._runtime.turn.release()
            else:
                begin_thread("cenote-process", self._write_down)
        except BaseException:
            self._pass_on()
            raise

    def _write_down(self) -> None:
        soon = False
        try:
            soon = self._runtime.submissions.process(
                self._record, self._seat, self._supervisor, _Written(self._pass_on)
            )
        finally:
            if soon:
                self._supervisor.call_in(WRITING_SECONDS, self._pass_on)
            else:
                self._pass_on()

    def _pass_on(self) -> None:
        with self._lock:
            outcome, self._outcome = self._outcome, None
        if outcome is not None:
            self._listener.ended(outcome)


class _Written:
    """A Listener of the request that records one more step."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def output(self, _stream: StreamName, _text: str) -> bool:
        return True

    def done(self, _outcome: Outcome) -> None:
        self._then()


def _step(order: ProgramOrder, number: int, seat: AuthorSession) -> StepRecord:
    return StepRecord(
        number=number,
        kind="process",
        code=order.shown,
        author=seat.author,
        cause=order.cause,
        timeout=order.timeout or 0.0,
        started=time.time(),
    )


def _ended(
    record: StepRecord, outcome: ProgramEnd | Exception, kept: dict[StreamName, KeptOutput]
) -> StepRecord:
    if isinstance(outcome, Exception):
        refusal = ErrorInfo(type=type(outcome).__name__, message=str(outcome), reason="process")
        return replace(record, status="refused", error=refusal)
    error = None
    if outcome.exit_code != 0:
        how = f"exit code {outcome.exit_code}" if outcome.exit_code is not None else outcome.killed_by
        error = ErrorInfo(type="ProcessFailed", message=how, reason=outcome.killed_by or "exit")
    out, err = (kept[stream].whole().decode(errors="replace") for stream in ("stdout", "stderr"))
    return replace(
        record,
        status="ok" if error is None else "failed",
        error=error,
        stdout=out,
        stderr=err,
        duration=outcome.duration,
        usage=CellUsage(wall=outcome.duration, output_bytes=sum(each.seen for each in kept.values())),
    )


def _as_cell(record: StepRecord) -> ExecutionResult:
    """For the platform's usage record, which has an entry for it as for a cell."""
    return ExecutionResult(
        success=record.status == "ok",
        stdout=record.stdout,
        stderr=record.stderr,
        error=record.error,
        step=record.number,
        duration=record.duration,
        author=record.author,
        usage=record.usage,
    )
