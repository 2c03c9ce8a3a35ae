"""Requests to a runtime, on their way into the jail: numbered, recorded, and given their listeners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cenote_security.errors import NotKeptError
from cenote_worker.history.step import START, StepRecord
from cenote_worker.jail.cells.ipython_syntax import without_mark
from cenote_worker.runtime import jail_requests
from cenote_worker.runtime.handover.handover_log import HandoverLog
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.jail_requests import ClientChange, WorkdirRequest
from cenote_worker.runtime.jails import CurrentJail, InjectionDelivery
from cenote_worker.runtime.keyed_requests import key_of
from cenote_worker.runtime.recorder import (
    DeletionListener,
    LossListener,
    Record,
    RecordingListener,
    UsageEntry,
    unrecorded,
)
from cenote_worker.runtime.snapshots import going_back
from cenote_worker.runtime.state.state_source import LossNoticeListener, recovered
from cenote_worker.supervisor.frame_parser import DoneReply
from cenote_worker.supervisor.requests import AuthorSession, JailRequest, Listener, Outcome, Withdraw
from cenote_worker.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from cenote_worker.runtime.runtime import HostedRuntime


class Submissions:
    """Of one runtime. Every request is queued in a jail that is started if need be: see HostedRuntime.start.

    jail: records which sessions use the jail.
    """

    def __init__(
        self, runtime: HostedRuntime, jail: CurrentJail, deliveries: InjectionDelivery, legacy: HandoverLog
    ) -> None:
        self._runtime = runtime
        self._jail = jail
        self._deliveries = deliveries
        self._legacy = legacy
        self._recorder = runtime.recorder

    def cell(
        self,
        code: str,
        timeout: float | None,
        listener: Listener,
        seat: AuthorSession,
        cause: str,
        entry: UsageEntry | None,
        origin: int,
        *,
        atomic: bool,
    ) -> Withdraw | None:
        """A step. See HostedRuntime.execute."""
        runtime = self._runtime
        code = without_mark(code)  # here, so that jail and record count columns of the same text
        with runtime.turn:
            runtime.check_open()
            runtime.history.check_room(code)
            if entry is not None:
                entry.admit()
            step = runtime.new_step()
            limit = timeout or runtime.policy.cell_timeout
            asked = jail_requests.step(code, step, seat, cause, limit, origin=origin, atomic=atomic)
            record = partial(self._recorded_cell, asked=asked, entry=entry)
            death = self._jail.unheard(seat)
            if death is not None and not runtime.refill.exact:
                result = death.before(step, seat.author)
                record(listener).done(recovered(result, runtime.refill.begins_with))
                return None
            supervisor = runtime.started(seat)
            request = jail_requests.cell(code, step, limit, listener, seat)
            request.message.execute.atomic = atomic
            request.code, request.cause = code, cause
            request.token = entry.token if entry is not None else ""
            request.listener = self._witness(listener, seat, supervisor, request.key, record)
            supervisor.submit(request)
        runtime.history.prepare()  # while the jail works
        return partial(supervisor.withdraw, request)

    def _recorded_cell(self, listener: Listener, asked: StepRecord, entry: UsageEntry | None) -> Listener:
        """Records usage first: a cell that ran is counted, whatever fails after it."""
        recorded = self._recorder.cell(listener, asked)
        return recorded if entry is None else RecordingListener(recorded, entry.ended)

    def rollback(self, to: int | str, listener: Listener, seat: AuthorSession) -> None:
        """See HostedRuntime.rollback."""
        supervisor = self._runtime.started(seat)
        if isinstance(to, int) and self._runtime.rerunning().is_between(to):
            listener.done(NotKeptError(to))
            return
        witness = self._witness(listener, seat, supervisor, key_of(listener), self._recorder.rollback)
        self.submit(going_back(to, witness, seat, supervisor, key_of(listener)))

    def injection(self, injection: Injection, listener: Listener, *, replace: bool) -> None:
        """A change. See HostedRuntime.inject."""
        runtime = self._runtime
        with runtime.turn:
            runtime.noted.check_room(injection, runtime.policy.memory_bytes)
            runtime.noted.identify(injection)
            supervisor = runtime.started(injection.seat)
            asked = ClientChange(kind="injection", names=injection.names, put_in=injection.put_in)
            change = self._numbered(asked, injection.seat)
            injection.step = change.number
            record = partial(self._recorder.change, change=change)
            witness = self._witness(listener, injection.seat, supervisor, key_of(listener), record)
            self._legacy.hold(injection)
            try:
                request = self._deliveries.request(
                    supervisor,
                    injection,
                    runtime.noted.noting(injection, witness),
                    replace=replace,
                    key=key_of(listener),
                )
                request.step = change.number
                supervisor.submit(request)
            except BaseException:
                self._legacy.release(injection)
                raise

    def injection_again(
        self, injection: Injection, asked: ClientChange, listener: Listener, seat: AuthorSession
    ) -> None:
        """A change that repeats an earlier step; later jails need not get it for that.

        injection: taken over.
        """
        injection.seat = seat
        try:
            with self._runtime.turn:
                supervisor = self._runtime.started(seat)
                request = self._deliveries.request(supervisor, injection, listener, replace=True)
                request.owned.append(injection.close)
                self.submit(request, replace(asked, put_in=injection.put_in))
        except BaseException:
            injection.close()
            raise

    def file(self, ask: WorkdirRequest, listener: Listener, seat: AuthorSession) -> None:
        """A change, or a request about the working directory."""
        request = jail_requests.file_request(ask, listener, seat)
        try:
            self.submit(request, ask.change())
        except BaseException:
            request.dispose()
            raise

    def process(
        self, asked: StepRecord, seat: AuthorSession, supervisor: Supervisor, listener: Listener
    ) -> bool:
        """Records a process that has ended in this jail. The listener is called when it is a step.

        False where that is not now: a request is under way, or the jail has ended and the step is not recorded.
        """
        with self._runtime.turn:
            if self._jail.running is not supervisor:
                return False
            at_once = not supervisor.at_work
            record = partial(self._recorder.process, asked=asked)
            witness = self._witness(listener, seat, supervisor, "", record)
            supervisor.submit(jail_requests.note_of_files(asked.number, witness, seat))
        return at_once

    def deletion(self, name: str, listener: Listener, seat: AuthorSession) -> None:
        """A change. See HostedRuntime.delete."""

        def note(outcome: Outcome) -> None:
            if isinstance(outcome, DoneReply):
                self._runtime.noted.deleted(name, seat)

        change = ClientChange(kind="deletion", names=(name,))
        withdrawal = DeletionListener(listener, partial(self._runtime.noted.deleted, name, seat))
        request = jail_requests.delete(name, withdrawal, seat)
        request.key = key_of(listener)
        self.submit(request, change, note)

    def submit(
        self,
        request: JailRequest,
        asked: ClientChange | None = None,
        note: Callable[[Outcome], None] | None = None,
    ) -> None:
        """Any other request. asked: its changes, if any. note: gets the jail's outcome."""
        with self._runtime.turn:
            supervisor = self._runtime.started(request.seat)
            request.key = request.key or key_of(request.listener)
            record: Record = unrecorded
            if asked is not None:
                change = self._numbered(asked, request.seat)
                request.step = change.number
                record = partial(self._recorder.change, change=change)
            heard = self._witness(request.listener, request.seat, supervisor, request.key, record)
            request.listener = heard if note is None else RecordingListener(heard, note)
            supervisor.submit(request)

    def _numbered(self, change: ClientChange, seat: AuthorSession) -> ClientChange:
        """Numbers a change as a step, unless it belongs to the initial state. Raises RejectedError."""
        is_step = self._runtime.step or change.stands_for is not None
        if not is_step:
            self._runtime.history.check_beginning(change.names)
        number = self._runtime.new_step() if is_step else START
        return replace(change, seat=seat, number=number)

    def _witness(
        self, listener: Listener, seat: AuthorSession, supervisor: Supervisor, key: str, record: Record
    ) -> Listener:
        """record: called before the state is stored, which may store the record, and with the step's own host
        calls."""
        refill = self._runtime.refill
        if not self._runtime.rerunning().by_work:
            listener = refill.acknowledging(listener, lambda: supervisor, key)
        recorded = record(listener)
        return LossListener(LossNoticeListener(recorded, refill), partial(self._jail.heard, seat, supervisor))
