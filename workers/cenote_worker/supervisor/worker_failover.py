"""What a supervisor does when its jail's worker dies or is ended, and a copy of it continues.

A worker that has been idle for a while is ended, too, and made again before the next request, at no cost but time.
The warden knows whether that can be done. No request is under way while there is no worker.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import NotKeptError, ProtocolViolation, RolledBackError, UnavailableError
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.supervisor.account.jail_account import JailAccount, UsageBaseline
from cenote_worker.supervisor.channels.jail_reader import HostCallReader, JailReader
from cenote_worker.supervisor.channels.warden import SnapshotsCallback, SnapshotTarget, WardenChannel
from cenote_worker.supervisor.exit_reason import STRIKE_SECONDS, JailExit, WorkerRecovery, WorkerRestart
from cenote_worker.supervisor.frame_parser import ExecutedReply
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.journal_port import JournalPort
from cenote_worker.supervisor.program import JailPrograms
from cenote_worker.supervisor.protocol import JailConversation, Phase, RequestKind, RequestLost
from cenote_worker.supervisor.reactor import Reactor, Timer
from cenote_worker.supervisor.requests import AuthorSession, JailRequest, undo_request
from cenote_worker.supervisor.running_request import JailWork, RunningRequest
from cenote_worker.transport.packets import send_packet

IDLE_SECONDS = 10.0
"""Until an idle worker is ended. Making it again costs some 20 ms of CPU time, and its pages' cost again."""

COMING_SECONDS: Final = 20.0
"""As long as a jail has to start: one without a worker by then is ended."""

_NONE_CAME: Final = "the runtime's process could not be started again; nothing ran, try again"


class IdleJailOwner(Protocol):
    """What this class needs of the jail's owner, under its lock."""

    @property
    def is_parkable(self) -> bool:
        """Whether it lives, nothing is under way, and the state is that of the step that it is at the end of."""

    def end(self, death: JailExit) -> None:
        """Kills the jail."""

    def refuse_waiting(self, error: UnavailableError) -> None:
        """Fails the waiting requests with this error: there is no worker, and none can be made."""

    def send_next(self) -> None:
        """Sends the next waiting request, if nothing is under way."""


class WorkerPresence(Enum):
    """The worker's presence. UNKNOWN: a former supervisor may have ended it."""

    THERE = auto()
    UNKNOWN = auto()
    LEAVING = auto()
    AWAY = auto()
    COMING = auto()


class IdleSuspend:
    """Of one jail, used under its lock."""

    def __init__(
        self,
        jail: IdleJailOwner,
        *,
        reactor: Reactor,
        lock: threading.RLock,
        control: WardenChannel,
        account: JailAccount,
        recovery: WorkerRecovery,
    ) -> None:
        self._jail = jail
        self._reactor = reactor
        self._lock = lock
        self._control = control
        self._account = account
        self._recovery = recovery
        self._presence = WorkerPresence.THERE
        self._timer: Timer | None = None
        self._idle_since = 0.0
        self._once_there: Callable[[], None] | None = None
        self._interrupted: JailRequest | None = None

    def take_up(self) -> None:
        """Continues after another supervisor."""
        self._presence = WorkerPresence.UNKNOWN
        self.rest()

    def rest(self) -> None:
        """Nothing is under way now. One timer for many cells: most begin and end long before it is due."""
        self._idle_since = time.monotonic()
        if self._timer is None:
            self._arm()

    def _arm(self) -> None:
        self._timer = self._reactor.call_at(self._idle_since + IDLE_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
            if (
                self._presence not in (WorkerPresence.THERE, WorkerPresence.UNKNOWN)
                or not self._jail.is_parkable
            ):
                return
            if time.monotonic() < self._idle_since + IDLE_SECONDS:
                self._arm()
            else:
                self._presence = WorkerPresence.LEAVING
                self._control.park(self._recovery.head)

    def has_worker(self) -> bool:
        """Whether a worker runs that can take a request. If not, `send_next` is called once one does."""
        if self._presence in (WorkerPresence.UNKNOWN, WorkerPresence.AWAY):
            self._presence = WorkerPresence.COMING
            self._control.unpark()
            self._within(COMING_SECONDS, self._on_late)
        return self._presence is WorkerPresence.THERE

    def interrupt_first(self, waiting: Sequence[JailRequest], seat: AuthorSession | None) -> bool:
        """Whether the first waiting request would run if the worker were there: then it is interrupted when it runs.

        seat: see `Supervisor.interrupt`.
        """
        late = waiting and self._presence in (WorkerPresence.LEAVING, WorkerPresence.COMING)
        if not late or seat not in (None, waiting[0].seat):
            return False
        self._interrupted = waiting[0]
        return True

    def was_interrupted(self, request: JailRequest) -> bool:
        """Whether the request, which was just sent, was interrupted before."""
        interrupted, self._interrupted = self._interrupted, None
        return interrupted is request

    def once_there(self, then: Callable[[], None]) -> None:
        """Calls back when all earlier requests to the warden are over, and a worker runs."""
        if self.has_worker():
            then()
        else:
            self._once_there = then

    def _within(self, seconds: float, late: Callable[[], None]) -> None:
        self.close()
        self._timer = self._reactor.call_at(time.monotonic() + seconds, late)

    def _on_late(self) -> None:
        with self._lock:
            self._jail.end(
                JailExit(reason="killed", detail=f"it did not start again in {COMING_SECONDS:g} s")
            )

    def parked(self, *, is_parked: bool) -> None:
        """The worker has ended, or cannot."""
        self._presence = WorkerPresence.AWAY if is_parked else WorkerPresence.THERE

    def unparked(self, pid: int) -> None:
        """A worker runs; 0: none can be made now."""
        self.close()
        if pid:
            self._account.follow(pid)
            self._presence = WorkerPresence.THERE
            self.rest()
            then, self._once_there = self._once_there, None
            if then is not None:
                then()
        else:
            self._presence = WorkerPresence.AWAY
            self._jail.refuse_waiting(UnavailableError(_NONE_CAME))

    def replaced(self) -> None:
        """Another worker runs. The warden still answers the pending requests."""
        if self._presence is WorkerPresence.AWAY:
            self._presence = WorkerPresence.THERE
            self.rest()

    def close(self) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _given_up(steps: Sequence[int]) -> str:
    """News for the cell that has caused it."""
    named = f"step {steps[0]}" if len(steps) == 1 else f"steps {min(steps)} to {max(steps)}"
    return (
        f"no rollback to {named} is possible any more: the cell changes so much memory that keeping those states "
        f"would have taken too long; `snapshot(label)` keeps a state whatever it costs"
    )


DROPPED = "it was given up while the cell ran: the cell wrote to so much memory that keeping it took too long"

WARDEN_SECONDS = 60.0
"""Seconds for a warden to answer; milliseconds are enough. A compromised one, possible at `gvisor`, may answer
nothing, and its caller would wait for ever."""

_SILENT: Final = JailExit(reason="killed", text="the runtime's first process did not answer and was killed")
UNKEEPABLE: Final = (
    "no state can be kept from here on, so that a crash costs all cells since, unless the runtime is durable"
)

_FELL_BEHIND: Final = JailExit(
    reason="killed",
    text="the runtime's process was killed while it was taken over, and so was the newest copy of it",
)


class FailoverOwner(Protocol):
    """What this class needs of the jail's owner, under its lock."""

    @property
    def death(self) -> JailExit | None:
        """Set when the jail has ended."""

    @property
    def is_sentenced(self) -> bool:
        """Whether the jail is about to be ended."""

    def end(self, death: JailExit) -> None:
        """Kills the jail."""

    def bury(self, found: JailExit) -> None:
        """The jail has ended: by itself, unless it was sentenced."""

    def send(self, request: JailRequest) -> None:
        """Sends the request, which is the running one, now."""

    def is_stored(self) -> bool:
        """Whether the state that clients were last informed of is stored for another jail."""

    @property
    def is_parkable(self) -> bool:
        """See `IdleJailOwner`."""

    def refuse_waiting(self, error: UnavailableError) -> None:
        """See `IdleJailOwner`."""

    def send_next(self) -> None:
        """Sends the next waiting request, if nothing is under way."""


class WorkerFailover:
    """The workers of one jail: where one has died, or is ended, a copy of it continues. The WardenObserver.

    `recovery` decides what follows from that; this class carries it out: on the worker, through the warden, on the
    request that was under way, and by informing the listeners.
    """

    def __init__(
        self,
        jail: FailoverOwner,
        work: JailWork,
        *,
        reactor: Reactor,
        lock: threading.RLock,
        ends: JailEnds,
        account: JailAccount,
        journal: JournalPort,
        conversation: JailConversation,
        intake: JailReader,
        hosts: HostCallReader,
    ) -> None:
        self._jail = jail
        self._work = work
        self._reactor = reactor
        self._asked = deque[tuple[float, int]]()
        """The deadline for the warden's answer, and the number of the request."""
        self._lock = lock
        self._frames = ends.frames
        self._account = account
        self._journal = journal
        self._conversation = conversation
        self._intake = intake
        self._hosts = hosts
        self.recovery = WorkerRecovery()
        self.control = WardenChannel(ends.control, self)
        self.programs = JailPrograms(reactor, lock, self.control, ends.isolation)
        self.parking = IdleSuspend(
            jail, reactor=reactor, lock=lock, control=self.control, account=account, recovery=self.recovery
        )

    # -- what is asked of the warden --

    def strike(self, death: JailExit) -> None:
        """Kills the worker, so that a copy continues; kills the jail if there is no worker, or that did not help."""
        with self._lock:
            ending = self._jail.death is not None or self._jail.is_sentenced
            if ending or self.recovery.struck is not None:
                return
            if death.reason == "memory" and self.programs.relieve():
                return
            if death.reason == "memory" and self.recovery.may_relieve():
                self.control.relieve()
                return
            if not self.recovery.may_strike() or self._conversation.phase is Phase.STARTING:
                self._jail.end(death)
                return
            self.recovery.strike(death)
            self.control.kill_worker()
            self._reactor.call_at(time.monotonic() + STRIKE_SECONDS, lambda: self._strike_harder(death))

    def _strike_harder(self, death: JailExit) -> None:
        if self.recovery.struck is death:
            self._jail.end(death)

    def snapshots(self, told: SnapshotsCallback, failed: Callable[[], None]) -> None:
        """Asks the warden for its snapshots; `failed` is called instead if the jail has ended."""
        with self._lock:
            if self._jail.death is None:
                self.control.snapshots(told, failed)
                return
        failed()

    def hold(self, targets: Iterable[SnapshotTarget]) -> Callable[[], None]:
        """Pins the snapshots of these states, unless memory is short, until the returned function is called."""
        with self._lock:
            holder = self.control.holds.add(targets)
        return partial(self._let_go, holder)

    def _let_go(self, holder: object) -> None:
        with self._lock:
            self.control.holds.let_go(holder)

    # -- requests that meet the death of the worker --

    def is_told_of_setback(self, request: JailRequest) -> bool:
        """Reports a death of the idle worker to the first request after it, which is not run. False if none died."""
        setback = self.recovery.told()
        if setback is None:
            return False
        request.dispose()
        if request.ask is RequestKind.EXECUTE:
            request.listener.done(setback.before_cell(request.step, request.seat.author))
        else:
            request.listener.done(UnavailableError(setback.before_request()))
        return True

    def never_left(self, found: RequestLost) -> None:
        if found.step != self.recovery.head and self._jail.is_stored():
            self._jail.end(_FELL_BEHIND)
            return
        running = self._work.take_running()
        self.recovery.found_at(found.step)
        setback = self.recovery.told()
        if setback is not None:
            running.news = found.amiss
            self._fell(running, setback, found.severed)
            return
        self._journal.unsent()
        text = "the runtime was taken over before the request was sent; nothing ran, try again"
        running.request.listener.done(UnavailableError(text))
        self._jail.send_next()

    def _fell(self, running: RunningRequest, setback: WorkerRestart, severed: tuple[str, ...]) -> None:
        """The running request has died with its worker."""
        self._intake.empty_pipes()
        if running.request.ask is RequestKind.EXECUTE:
            spent, now = self._account.spent(), time.monotonic()
            result = running.rolled_back(setback, severed, self._work.take_background(), spent, now)
            running.request.listener.done(result)
        else:
            error = RolledBackError(setback.death.describe(), setback.step)
            running.request.listener.done(error)
        self._jail.send_next()

    def ran(
        self, running: RunningRequest, reply: ExecutedReply
    ) -> tuple[ExecutionResult, JailRequest | None]:
        """The result of a cell, and the rollback that has to be done before the result is given."""
        before, running.news = self.recovery.head, self.recovery.news()
        if reply.unkeepable:
            running.news = (*running.news, f"{UNKEEPABLE}: {reply.unkeepable}")
        if reply.given_up:
            running.news = (*running.news, _given_up(reply.given_up))
        self.recovery.ran(running.request.step)
        spent, now = self._account.spent(), time.monotonic()
        if spent.crowded:
            self.control.thin()
        result = running.finished(reply, self._work.take_background(), spent, now)
        return result, undo_request(running.request, result, before)

    def find_out(self, request: JailRequest, *, sent: bool) -> None:
        """Finds out what became of a request of a former supervisor, which may never have left or be lost."""
        if sent or request.ask is not RequestKind.ROLLBACK:
            self._probe()
            return
        # The warden may have got the request, and have done it. Nothing has run since: twice is as good as once. The
        # worker's answer to the survey after the former try, if any, would come before the warden's answer to this.
        request.message.id = number = self._conversation.again()
        self._journal.asked(number, request, time.monotonic(), UsageBaseline())
        self.control.rollback(request.step, request.label)

    def _probe(self) -> None:
        """Sends a probe after the running request, which may never have left or be lost. Which is answered first?"""
        # The number comes from a clock of the machine, so that no former or later supervisor has used it.
        probe = jail_pb2.Request(id=self._conversation.probe(time.monotonic_ns()))
        probe.survey.SetInParent()
        with suppress(OSError):  # the jail is dying, which the control channel reports
            send_packet(self._frames, probe.SerializeToString())

    # -- the warden's news --

    def asked(self, number: int) -> None:
        self._asked.append((time.monotonic() + WARDEN_SECONDS, number))
        if len(self._asked) == 1:
            self._look_later()

    def _look_later(self) -> None:
        """One timer for all requests to the warden. It holds no reference that would outlive this object."""
        look = weakref.WeakMethod(self._look)

        def late() -> None:
            if (alive := look()) is not None:
                alive()

        self._reactor.call_at(self._asked[0][0], late)

    def _look(self) -> None:
        with self._lock:
            while self._asked and not self.control.awaits(self._asked[0][1]):
                self._asked.popleft()
            if not self._asked:
                return
            if self._asked[0][0] <= time.monotonic():
                self._jail.end(_SILENT)
            else:
                self._look_later()

    def ended(self, death: JailExit) -> None:
        self._jail.bury(death)

    def revived(self, death: JailExit, step: int, pid: int) -> None:
        found = self._account.explain(death)
        if found.reason == "memory":
            self.control.thin()  # so that the next try finds more room
        self._succeeded(pid)
        changed = self.recovery.revive(found, step)
        if self.recovery.is_hopeless or (changed and self._jail.is_stored()):
            self._jail.end(found)
            return
        self._journal.moved(step, self.recovery.setback)
        if self._work.running is not None and self._conversation.phase is Phase.BUSY:
            self._probe()
        elif not changed:
            self.recovery.pass_over()

    def dropped(self) -> None:
        if self._work.running is not None:
            self._work.running.unkept = DROPPED

    def _succeeded(self, pid: int) -> None:
        """Another process is the worker now."""
        self.parking.replaced()
        self._account.follow(pid)
        self._hosts.abandon()

    def parked(self, *, is_parked: bool) -> None:
        self.parking.parked(is_parked=is_parked)

    def unparked(self, pid: int) -> None:
        self.parking.unparked(pid)

    def not_begun(self, number: int, code: int) -> None:
        self.programs.not_begun(number, code)

    def unattended(self, number: int, cause: str) -> None:
        self.programs.unattended(number, cause)

    def rolled_back(self, step: int | None, pid: int) -> None:
        running = self._work.running
        if running is None or running.request.ask is not RequestKind.ROLLBACK:
            raise ProtocolViolation("a rollback without a request")
        if step is None:
            self._conversation.unsent()
            self._journal.unsent()
            self._work.take_running()
            running.request.listener.done(NotKeptError(running.request.label or running.request.step))
            return
        self._succeeded(pid)
        self.recovery.ran(step)
        self._journal.moved(step, None)
        running.request.step = step
        running.request.message.survey.SetInParent()
        self._jail.send(running.request)
