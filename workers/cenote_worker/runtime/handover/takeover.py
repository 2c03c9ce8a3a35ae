"""Continues with a runtime whose process has ended: its jail, its namespace, the cell that runs.

The journal records how the former process left the runtime. A jail that still runs is supervised again, and the
requests under way are joined; where it has vanished, the next jail begins as after any other loss.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from cenote_proto.v1 import jail_pb2, journal_pb2
from cenote_security.errors import JailLostError
from cenote_security.policy import SandboxPolicy
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.execution.transcript import CellTranscript
from cenote_worker.history.history import History
from cenote_worker.process.metrics import Counts
from cenote_worker.record.journal import from_entry
from cenote_worker.record.journal_replay import JailReplay, JournalReplay, ReplayedRequest
from cenote_worker.runtime import jail_requests
from cenote_worker.runtime.handover.stored_log import StoredHandoverLog
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.jail_requests import ClientChange
from cenote_worker.runtime.keyed_requests import KeyedCall
from cenote_worker.runtime.patch_jobs import UnfinishedPatch
from cenote_worker.runtime.recorder import DiscardingListener, LossListener, RecordingListener, UsageEntry
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.state_source import LossNoticeListener
from cenote_worker.supervisor.account.jail_account import UsageBaseline
from cenote_worker.supervisor.channels.host_calls import HostCallChannel, HostHandler
from cenote_worker.supervisor.exit_reason import JailExit, WorkerRestart
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.journal_port import PendingRequest, Piece, SupervisorState
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import (
    OWNER,
    AuthorSession,
    JailRequest,
    Listener,
    Outcome,
    UndoListener,
)
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.transport.packets import Packet
from cenote_worker.wire.results import to_result

VANISHED = JailExit(
    reason="killed",
    text="the runtime's process and whatever held its jail beside it were ended together",
    outside=True,
)
"""The end of a jail that is in the journal, but whose ends no process has open."""


def seat_of(asked: journal_pb2.Asked) -> AuthorSession:
    """The session of the requester."""
    return AuthorSession(author=asked.author, private=asked.private) if asked.author else OWNER


def vanished(request: ReplayedRequest) -> Outcome:
    """The outcome of a request whose jail has vanished."""
    if request.ask is not RequestKind.EXECUTE:
        return JailLostError(VANISHED.describe())
    asked, error = request.asked, VANISHED.as_error()
    return ExecutionResult(success=False, error=error, step=asked.step, state="lost", author=asked.author)


def succession(
    kept: StoredHandoverLog,
    story: JailReplay,
    ends: JailEnds,
    held: Sequence[Listener],
    listener: Listener | None,
    is_stored: Callable[[], bool],
) -> SupervisorState:
    """The state in which the former supervisor left its jail. listener: of the request that is under way, if one is.

    held: the listeners of the requests that were answered before. is_stored: see SupervisorState.
    """
    under = None
    if story.request is not None:
        assert listener is not None
        under = _underway(story.request, listener)
    asked = story.request.asked if story.request is not None else journal_pb2.Asked()
    kills = max(asked.kills, story.jail.kills)
    return SupervisorState(
        ready=story.jail.ready,
        number=story.jail.number,
        begun=UsageBaseline(cpu=asked.cpu, written=asked.written, kills=kills),
        answered=[_underway(each, its) for each, its in zip(story.held.values(), held, strict=True)],
        underway=under,
        background=story.background.after(0)[1],
        head=story.jail.head,
        setback=_setback(story.setback),
        skip=lambda: kept.take_up(ends, story),
        is_stored=is_stored,
    )


def _setback(moved: journal_pb2.Moved | None) -> WorkerRestart | None:
    if moved is None:
        return None
    death = JailExit(reason=moved.reason, detail=moved.detail, text=moved.text, outside=moved.outside)
    return WorkerRestart(death=death, step=moved.step, before=moved.before)


def _underway(request: ReplayedRequest, listener: Listener) -> PendingRequest:
    asked, interrupted, message = request.asked, request.interrupted, jail_pb2.Request()
    if asked.atomic:
        message.execute.atomic = True
    return PendingRequest(
        number=asked.number,
        begun=UsageBaseline(cpu=asked.cpu, written=asked.written, kills=asked.kills),
        request=JailRequest(
            request.ask,
            message,
            listener,
            timeout=asked.timeout or None,
            step=asked.step,
            key=asked.key,
            injection=asked.injection,
            seat=seat_of(asked),
            label=asked.label,
            code=asked.code.decode("utf-8", "surrogatepass"),
            cause=asked.cause,
            token=asked.token,
            undoes=to_result(asked.failed) if asked.HasField("failed") else None,
        ),
        started=asked.started,
        interrupted_at=interrupted.at if interrupted is not None else None,
        expired=interrupted is not None and interrupted.expired,
        # A request that was answered, or has printed, must have been sent.
        sent=request.sent or request.answered,
        missing=request.printed.after(0)[0],
        heard=list(_heard(request)),
    )


def _heard(request: ReplayedRequest) -> Iterator[Piece]:
    yield from request.printed.after(0)[1]
    for arrived in request.packets:
        yield Packet(arrived.data, [_memory(data) for data in arrived.attached])


def _memory(data: bytes) -> int:
    with SealedMemory.create([data]) as memory:
        return os.dup(memory.fileno())


Equip = Callable[[HostedRuntime], None]
"""Gives a runtime its means to store states, before anything is read from its jail."""


Entries = Callable[[str, str], UsageEntry]
"""Makes the platform's usage entry for a cell that is not counted: from its code, and its token's id."""


def _bare(_runtime: HostedRuntime) -> None:
    pass


def adopt(
    name: str,
    policy: SandboxPolicy,
    hosts: HostHandler,
    kept: StoredHandoverLog,
    history: History | None = None,
    equip: Equip = _bare,
    entries: Entries | None = None,
    counts: Counts | None = None,
    tenant: str = "",
) -> HostedRuntime:
    """Continues with a runtime that another process has left. policy: the one that it had. kept: as it was found.

    Its namespace, its running cell and the outcomes of its last keyed calls are there. Calls that were waiting never
    ran: their clients send them again. A jail that has ended meanwhile is reported as in its own process.
    history: as that process recorded it, if it did. entries: for the running cell, if usage is recorded.
    counts, tenant: see HostedRuntime.
    """
    runtime = HostedRuntime(policy, hosts, kept.start_jail, name, kept, history, counts, tenant)
    story = kept.found_story()
    last = story.current
    runtime.count_on(story.steps, last.jail.ends_at or None)
    runtime.recorder.went_unrecorded(_recorded_by(story))
    for key, step in story.forgotten.items():
        runtime.calls.restore_key(key, step)
    for key, outcome in story.outcomes.items():
        runtime.calls.restore(key, from_entry(outcome.settled), outcome.printed)
    injections = kept.find_injections()
    for number in story.injections:
        if number in injections:
            runtime.noted.restore(injections[number])
    runtime.noted.sweep()
    equip(runtime)
    unfinished = UnfinishedPatch(runtime, story.patch, story.steps) if story.patch is not None else None
    if unfinished is not None:
        unfinished.hold()
    if last.ended is None:
        _Takeover(runtime, kept, last, injections, entries).carry_out()
    elif not last.jail.mourned and last.jail.filled:
        ended = last.ended
        death = JailExit(reason=ended.reason, detail=ended.detail, text=ended.text, outside=ended.outside)
        runtime.jail.bereave(death)
    if unfinished is not None:
        unfinished.undo()
    return runtime


def _recorded_by(story: JournalReplay) -> int:
    """The last step that the former process can have recorded: a step under way is recorded by the successor."""
    steps = story.steps
    for request in (story.current.request, *reversed(story.current.held.values())):
        asked = request.asked if request is not None else journal_pb2.Asked()
        if _number(asked) == steps and (asked.code or asked.injection):
            steps -= 1
    return steps


def _number(asked: journal_pb2.Asked) -> int:
    """The number of the request's step, 0 for none. A rollback that undoes a cell names its target step."""
    return asked.failed.step if asked.HasField("failed") else asked.step


class _Takeover:
    """The takeover of one jail whose end was not recorded."""

    def __init__(
        self,
        runtime: HostedRuntime,
        kept: StoredHandoverLog,
        story: JailReplay,
        injections: Mapping[int, Injection],
        entries: Entries | None,
    ) -> None:
        self._runtime = runtime
        self._kept = kept
        self._story = story
        self._injections = injections
        self._entries = entries
        self._call: KeyedCall | None = None
        self._supervisor: Future[Supervisor] = Future()
        """Of that jail; no result where it has vanished."""

    def carry_out(self) -> None:
        ends = self._kept.find_ends(self._story.jail.jail)
        held = self._held(lives=ends is not None)
        request = self._story.request
        listener = self._listener(request) if request is not None else None
        if ends is None:
            self._bereave(request, listener)
            return
        if self._story.jail.filled and not self._story.jail.mourned:
            self._open_host_line(self._runtime.jail.take_over(lambda: self._supervise(ends, held, listener)))
        else:  # a start or a reset was under way: no client has, or wants, values in it. The next call starts another
            self._supervise(ends, held, listener).end(JailExit(reason="closed"))

    def _held(self, *, lives: bool) -> list[Listener]:
        """Listeners of the requests whose answers were being stored. lives: whether they still can be."""
        if lives:
            listeners = [self._listener(request) for request in self._story.held.values()]
            self._call = None
            return listeners
        for key, request in self._story.held.items():
            self._runtime.calls.restore_key(key, request.asked.step)
        return []

    def _supervise(self, ends: JailEnds, held: Sequence[Listener], listener: Listener | None) -> Supervisor:
        left = succession(self._kept, self._story, ends, held, listener, self._runtime.is_stored)
        with self._runtime.log_context():
            supervisor = self._kept.supervise(ends, self._story, self._runtime.ledger, left)
        if self._call is not None and left.underway is not None:
            self._call.begun(partial(supervisor.withdraw, left.underway.request))
        self._supervisor.set_result(supervisor)
        return supervisor

    def _bereave(self, request: ReplayedRequest | None, listener: Listener | None) -> None:
        if self._story.jail.filled and not self._story.jail.mourned:
            self._runtime.jail.bereave(VANISHED)
        if request is not None and listener is not None:
            listener.done(vanished(request))

    def _open_host_line(self, supervisor: Supervisor) -> None:
        found = self._kept.find_host_channel(self._story.jail.jail)
        if found is not None:
            ours, theirs, log = found
            limit = 2 * self._runtime.policy.memory_bytes
            notes = self._runtime.recorder.host_calls
            line = HostCallChannel(
                ours, self._runtime.replays, limit, None, log, self._story.host_calls, notes
            )
            supervisor.hosts.open(line, theirs)
            line.disown()

    def _listener(self, request: ReplayedRequest) -> Listener:
        """The listener of a request that is under way: clients that join with its key get its outcome."""
        listener: Listener = DiscardingListener()
        if key := request.asked.key:
            printed = CellTranscript(self._runtime.policy.output_bytes)
            printed.skip(request.printed.after(0)[0])  # the rest is replayed
            listener = self._call = self._runtime.calls.restore(key, None, printed)
        injection = self._injections.get(request.asked.injection)
        refill = self._runtime.refill
        stored = refill.acknowledging(listener, self._supervisor.result, request.asked.key)
        recorded = self._recorded(stored, request, injection)
        listener = LossNoticeListener(self._entered(recorded, request), refill)
        if request.asked.HasField("failed"):
            listener = UndoListener(listener, to_result(request.asked.failed))
        if seat_of(request.asked) is OWNER:  # the result of another session does not inform the owner
            listener = LossListener(listener, self._lost)
        return listener if injection is None else self._runtime.noted.noting(injection, listener)

    def _entered(self, listener: Listener, request: ReplayedRequest) -> Listener:
        """Records usage when the request ends: the former process has recorded cells that ended before."""
        asked = request.asked
        is_cell = request.ask is RequestKind.EXECUTE or asked.HasField("failed")
        if self._entries is None or not is_cell or request is not self._story.request:
            return listener
        entry = self._entries(asked.code.decode("utf-8", "surrogatepass"), asked.token)
        return RecordingListener(listener, entry.ended)

    def _recorded(
        self, listener: Listener, request: ReplayedRequest, injection: Injection | None
    ) -> Listener:
        """Records the request as the former process would have, unless that has done so already."""
        asked, recorder = request.asked, self._runtime.recorder
        if request.ask is RequestKind.ROLLBACK and not asked.HasField("failed"):
            return recorder.rollback(listener)
        number = _number(asked)
        if not number or number in self._runtime.history.tree:
            return listener
        if request.ask in (RequestKind.EXECUTE, RequestKind.ROLLBACK):
            code = asked.code.decode("utf-8", "surrogatepass")
            seat, limit = seat_of(asked), asked.timeout
            step = jail_requests.step(code, number, seat, asked.cause, limit, atomic=asked.atomic)
            return recorder.cell(listener, step)
        if injection is None:
            return listener
        change = ClientChange(
            kind="injection",
            names=injection.names,
            put_in=injection.put_in,
            seat=seat_of(asked),
            number=asked.step,
        )
        return recorder.change(listener, change)

    def _lost(self) -> None:
        self._runtime.jail.lost()
        self._kept.mourned(self._story.jail.jail)
