"""Owns one jail: takes its callers' requests and gives them their outcomes.

Decisions are made elsewhere (`protocol`, `running_request`, `frame_parser`, `exit_reason`), and so are the effects
on the jail: `dispatch` sends requests and interrupts, `channels` read, `termination` ends the jail; this module
joins them. All of it runs on the reactor's thread, except that a request to an idle jail is sent by its caller at
once. A supervisor may also continue where a former one of the same jail was ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from cenote_security.errors import ProtocolViolation, UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.proxy import OpenProxySession
from cenote_worker.execution.results import JailStatus, LiveOutput, StreamName
from cenote_worker.supervisor import frame_parser
from cenote_worker.supervisor.account.jail_account import JailAccount
from cenote_worker.supervisor.channels.jail_reader import HostCallReader, JailReader
from cenote_worker.supervisor.dispatch import Dispatch, RequestInterrupts
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.jail_handle import JailEnds, JailHandle
from cenote_worker.supervisor.journal_port import (
    NO_JOURNAL,
    JournalPort,
    PendingRequest,
    Piece,
    SupervisorState,
)
from cenote_worker.supervisor.protocol import JailConversation, Phase, RequestKind, RequestLost
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.requests import AuthorSession, JailRequest, Outcome
from cenote_worker.supervisor.running_request import JailWork, RunningRequest, enqueue, withdrawn
from cenote_worker.supervisor.termination import Termination, decline, expired
from cenote_worker.supervisor.worker_failover import WorkerFailover
from cenote_worker.transport.packets import Packet, PacketAssembly


class Takeover:
    """The takeover of one jail; used once, under its lock, before any of its descriptors is watched."""

    def __init__(
        self,
        work: JailWork,
        *,
        account: JailAccount,
        conversation: JailConversation,
        successors: WorkerFailover,
        intake: JailReader,
        interrupts: RequestInterrupts,
        printed: Callable[[StreamName, str], None],
        kept: int,
    ) -> None:
        """printed: called with what was printed through pipes. kept: see `RunningRequest.begun`."""
        self._work = work
        self._account = account
        self._conversation = conversation
        self._successors = successors
        self._recovery, self._control = successors.recovery, successors.control
        self._parking = successors.parking
        self._intake = intake
        self._interrupts = interrupts
        self._printed = printed
        self._kept = kept

    def take_up(self, left: SupervisorState) -> None:
        """Restores all that the former supervisor knew, and waits for what it waited for."""
        left.skip()
        self._control.take_up()
        self._parking.take_up()
        self._interrupts.take_up()
        asked = time.monotonic_ns()  # see WorkerFailover._probe
        for former in left.answered:
            self._conversation.take_up(former.number, former.request.ask, ready=True, asked=asked)
            self._account.resume(former.begun)
            self._take_up_request(former)
        under = left.underway
        ask = under.request.ask if under is not None else None
        self._conversation.take_up(left.number, ask, ready=left.ready, asked=asked)
        self._account.resume(left.begun)
        self._recovery.head, self._recovery.setback = left.head, left.setback
        for piece in left.background:
            self._replay(piece)
        if under is None:
            self._account.spent()  # no cell is running
        else:
            self._take_up_request(under)

    def _take_up_request(self, under: PendingRequest) -> None:
        self._work.running = RunningRequest.taken_up(under, self._kept)
        for piece in under.heard:
            self._replay(piece)
        if self._work.running is not None:
            if not under.sent or self._recovery.setback is not None:
                self._parking.once_there(lambda: self._find_out(under))
            self._interrupts.arm()

    def _find_out(self, under: PendingRequest) -> None:
        running = self._work.running
        if running is not None and running.request is under.request:
            self._successors.find_out(under.request, sent=under.sent)

    def _replay(self, piece: Piece) -> None:
        if isinstance(piece, Packet):
            self._intake.replay(piece)
        else:
            self._printed(*piece)


HANGUP_SECONDS = 5.0
"""Seconds between a jail's last packet and its end: normally milliseconds, on a busy machine a second."""


class Supervisor:
    """One jail and the requests to it, answered in the order in which they came."""

    def __init__(
        self,
        reactor: Reactor,
        ends: JailEnds,
        policy: SandboxPolicy,
        account: JailAccount,
        buried: Callable[[], None],
        egress: OpenProxySession | None = None,
        ends_at: float | None = None,
        journal: JournalPort = NO_JOURNAL,
        succession: SupervisorState | None = None,
    ) -> None:
        """buried: called once, when the jail has ended. egress: its network access, if any.

        ends_at: when it is ended in any case, monotonic. succession: the state in which a former supervisor left it.
        """
        self._reactor = reactor
        self._lock = threading.RLock()
        self._ends = ends
        self._policy = policy
        self.isolation: str = ends.isolation
        self.began_cold = ends.cold
        self.image_key = ends.image_key
        self.common = ends.common
        self._account = account
        self.sparing = account.sparing
        self._journal = journal
        self._value_limit = 2 * policy.memory_bytes
        self._intake = JailReader(
            reactor,
            self._lock,
            ends,
            journal,
            self.new_assembly(),
            partial(frame_parser.parse, display_limit=policy.output_bytes, value_limit=self._value_limit),
            self,
        )
        self.hosts = HostCallReader(reactor, self._lock, self.violated)
        self._conversation = JailConversation()
        self._work = JailWork()
        self._successors = WorkerFailover(
            self,
            self._work,
            reactor=reactor,
            lock=self._lock,
            ends=ends,
            account=account,
            journal=journal,
            conversation=self._conversation,
            intake=self._intake,
            hosts=self.hosts,
        )
        self._recovery, self._control = self._successors.recovery, self._successors.control
        self._parking = self._successors.parking
        self.programs = self._successors.programs
        """The programs that run beside the worker."""
        self._interrupts = RequestInterrupts(
            self._work,
            reactor=reactor,
            lock=self._lock,
            control=self._control,
            journal=journal,
            parking=self._parking,
            strike=self._successors.strike,
        )
        self._dispatch = Dispatch(
            self,
            self._work,
            reactor=reactor,
            lock=self._lock,
            ends=ends,
            account=account,
            journal=journal,
            conversation=self._conversation,
            successors=self._successors,
            interrupts=self._interrupts,
            kept=policy.output_bytes,
        )
        handle = JailHandle(reactor, self._lock, ends, egress, buried)
        self.set_common = handle.set_common
        self._ending = Termination(
            self._work,
            reactor=reactor,
            lock=self._lock,
            account=account,
            journal=journal,
            conversation=self._conversation,
            successors=self._successors,
            intake=self._intake,
            hosts=self.hosts,
            ends=ends,
            handle=handle,
        )
        self.is_stored: Callable[[], bool] = (
            _nothing_is_stored if succession is None else succession.is_stored
        )
        """Whether the state that clients were last informed of is stored for another jail: then this one never
        continues from an earlier state. On any thread, under the lock."""
        self.strike = self._successors.strike
        """See WorkerFailover, also for `hold` and `snapshots`."""
        self.hold, self.snapshots = self._successors.hold, self._successors.snapshots
        self.send, self.send_next = self._dispatch.send, self._dispatch.send_next
        self.refuse_waiting = self._dispatch.refuse_waiting
        handle.call_at(ends_at, self._expire)
        account.watch(self.strike)
        if succession is not None:
            self._take_up(succession)
        reactor.call_soon(self._watch)

    def _take_up(self, left: SupervisorState) -> None:
        takeover = Takeover(
            self._work,
            account=self._account,
            conversation=self._conversation,
            successors=self._successors,
            intake=self._intake,
            interrupts=self._interrupts,
            printed=self._print,
            kept=self._policy.output_bytes,
        )
        with self._lock:
            takeover.take_up(left)

    @property
    def head(self) -> int:
        """The step whose end the live namespace is at."""
        return self._recovery.head

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        asked = self._work.is_there or self._control.busy or self.programs.running
        return bool(asked or self._conversation.phase is not Phase.IDLE or self.is_sentenced)

    @property
    def at_work(self) -> bool:
        """Whether a request is being carried out, or waits for that."""
        return self._work.is_there or self._conversation.phase is not Phase.IDLE

    @property
    def is_parkable(self) -> bool:
        """See `IdleJailOwner`."""
        recovery = self._recovery
        at_rest = self.death is None and not (self._ending.is_left or self.busy)
        return at_rest and recovery.struck is None and not recovery.touched

    def begins_at(self, step: int) -> None:
        """The namespace was filled with the state after this step, before any client could use it."""
        with self._lock:
            self._recovery.ran(step)

    @property
    def limits(self) -> str:
        """What enforces the limits of the jail as a whole: see JailAccount.mode."""
        return self._account.mode

    def new_assembly(self) -> PacketAssembly | None:
        """Assembles packets of this jail, if it must send them in pieces; one for each socket."""
        limit = max(self._value_limit, self._policy.output_bytes) + frame_parser.MAX_REPLY
        return PacketAssembly(limit) if self.isolation == "gvisor" else None

    # -- what callers do, from any thread --

    def submit(self, request: JailRequest) -> None:
        """Queues a request; its listener gets the outcome. A request to a dead jail is declined at once."""
        if request.timeout is None and request.ask is not RequestKind.EXECUTE:
            request.timeout = self._policy.call_seconds
        with self._lock:
            if self.death is None:
                enqueue(self._work.waiting, request)
                self.send_next()
                return
        decline(request, self.death)

    def withdraw(self, request: JailRequest, *, waiting: bool = True) -> None:
        """Withdraws a request: see Withdraw."""
        with self._lock:
            if request in self._work.waiting:
                if not waiting:
                    return
                self._work.waiting.remove(request)
                request.dispose()
                request.listener.done(UnavailableError("the request was withdrawn before it was carried out"))
            elif self._work.running is not None and self._work.running.request is request:
                self.interrupt()

    def vacate(self, seat: AuthorSession) -> list[JailRequest]:
        """The session's client has gone: interrupts its cell. Returns its waiting requests, for the caller to end."""
        with self._lock:
            self.interrupt(seat)
            return withdrawn(self._work.waiting, seat)

    def interrupt(self, seat: AuthorSession | None = None) -> bool:
        """Interrupts the running cell; kills the jail if it goes on. False when nothing runs.

        seat: interrupt only a cell of this session; False when another's runs.
        """
        with self._lock:
            return self._interrupts.interrupt(seat)

    def status(self, answer: Callable[[JailStatus | None], None]) -> None:
        """Asks the warden; `answer` is called, on any thread, with None if the jail has ended."""
        with self._lock:  # to the end: the answer must not come before the request is noted
            if self.death is not None:
                answer(None)
                return
            running = self._work.running.request if self._work.running is not None else None
            cell = running if running is not None and running.ask is RequestKind.EXECUTE else None

            def enrich(memory: int, processes: int) -> None:
                answer(
                    JailStatus(
                        memory=memory,
                        processes=processes,
                        step=None if cell is None else cell.step,
                        author="" if cell is None else cell.seat.author,
                        isolation=self.isolation,
                        limits=self.limits,
                    )
                )

            self._control.status(enrich, lambda: answer(None))

    def live_output(self, after: LiveOutput) -> LiveOutput:
        """What the running cell has printed since that look."""
        with self._lock:
            running = self._work.running
            if running is None or running.request.ask is not RequestKind.EXECUTE:
                return LiveOutput()
            return running.live_output(after)

    def let_go(self) -> bool:
        """Leaves an idle jail to a successor, as the end of this process would. False while anything is under way.

        Not on the reactor's thread: waits for that thread to release the jail.
        """
        with self._lock:
            if self.busy:
                return False
            self._ending.deafen()
        self._ending.leave()
        return True

    def call_in(self, seconds: float, callback: Callable[[], None]) -> None:
        """On the reactor's thread."""
        self._reactor.call_at(time.monotonic() + seconds, callback)

    def resume(self) -> None:
        """The listener can take output again."""
        self._reactor.call_soon(self._resume)

    def mourned(self) -> None:
        """The runtime's owner was informed of this jail's end, or requested it: no successor reports it again."""
        self._journal.mourned()

    def end(self, death: JailExit) -> None:
        """Kills the jail. Its callers get the reason as soon as it is gone."""
        self._ending.end(death)

    def bury(self, found: JailExit) -> None:
        """The jail has ended: by itself, unless it was sentenced."""
        self._ending.bury(found)

    @property
    def death(self) -> JailExit | None:
        """Set when the jail has ended."""
        return self._ending.death

    @property
    def is_sentenced(self) -> bool:
        """Whether the jail is about to be ended, or was."""
        return self._ending.is_sentenced

    def _expire(self) -> None:
        self.end(expired(self._policy.runtime_timeout))

    # -- hearing, on the reactor's thread --

    def _watch(self) -> None:
        if self.death is None:
            self._reactor.watch(self._ends.control.fileno(), self._on_control)
            self._intake.watch()

    def heard(self, event: frame_parser.JailEvent) -> None:
        try:
            reply = self._conversation.hear(event) if not self.is_sentenced else None
        except ProtocolViolation:
            frame_parser.discard(event)
            raise
        if reply is None:
            frame_parser.discard(event)
        if isinstance(event, frame_parser.OutputEvent):
            self._print(event.stream, event.text)
        elif isinstance(event, frame_parser.DisplayEvent) and self._work.running is not None:
            self._work.running.display(event)
        elif isinstance(reply, RequestLost):
            self._successors.never_left(reply)
        elif reply is not None:
            self._finish(reply)
        else:  # the jail has reported ready, or answered a probe, whose answer itself is of no use
            self.send_next()

    def _on_control(self) -> None:
        with self._lock:
            if self._ending.is_left:
                return
            try:
                self._control.read()
            except ProtocolViolation as violation:
                self.violated(violation)
                self.bury(_broken(violation))
            if self.death is None:
                self.send_next()

    def violated(self, violation: ProtocolViolation) -> None:
        self.end(_broken(violation))

    def hung_up(self) -> None:
        """A jail that ends hangs up, and its end is reported at once. One that lives on could never answer again."""
        self._reactor.call_at(time.monotonic() + HANGUP_SECONDS, self._end_unheard)

    def _end_unheard(self) -> None:
        with self._lock:
            if not self._ending.is_left:
                self.end(_broken(ProtocolViolation("it has closed the socket of its answers and lives on")))

    def piped(self, stream: StreamName, text: str) -> None:
        self._journal.printed(stream, text)
        self._print(stream, text)

    def _print(self, stream: StreamName, text: str) -> None:
        running = self._work.running
        if running is None or not running.request.has_output:
            self._work.background.add(stream, text)
            return
        if not running.output(stream, text):
            self._intake.pause()

    def _resume(self) -> None:
        with self._lock:
            self._intake.resume()

    def _finish(self, reply: frame_parser.ReplyBody) -> None:
        self._intake.empty_pipes()
        running = self._work.take_running()
        outcome: Outcome
        if isinstance(reply, frame_parser.ExecutedReply):
            outcome, undo = self._successors.ran(running, reply)
            if undo is not None:
                self._work.waiting.appendleft(undo)
                self.send_next()
                return
        else:
            outcome = running.answered(self._recovery.answered(running.request, reply))
        try:
            # Before the next is sent: a journal has one request under way.
            running.request.listener.done(outcome)
        finally:
            self.send_next()
            if self._work.running is None:
                self._parking.rest()
                self._journal.rest()


def _nothing_is_stored() -> bool:
    return False


def _broken(violation: ProtocolViolation) -> JailExit:
    return JailExit(reason="protocol", detail=str(violation))
