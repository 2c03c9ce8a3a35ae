"""How requests are sent to a jail, one at a time, and how the running one is interrupted.

An interrupt is sent because a client asks for one or because the time of the request is over. It could hit the
request after the one that it is meant for, so nothing is sent while one is under way. What cannot be sent is
refused.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from cenote_security.errors import UnavailableError
from cenote_worker.supervisor.account.jail_account import JailAccount, UsageBaseline
from cenote_worker.supervisor.channels.warden import WardenChannel
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.journal_port import JournalPort
from cenote_worker.supervisor.protocol import JailConversation, Phase, RequestKind
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.requests import AuthorSession, JailRequest
from cenote_worker.supervisor.running_request import JailWork, RunningRequest
from cenote_worker.supervisor.termination import ignored
from cenote_worker.supervisor.worker_failover import IdleSuspend, WorkerFailover
from cenote_worker.transport.packets import send_packet

SUCCESSOR_SECONDS = 20.0
"""Seconds for a copy to answer in place of a worker killed for its time: as long as a jail has to start."""


class RequestInterrupts:
    """Of one jail, used under its lock. The clock decides what each leads to; a worker that ignores one is killed."""

    def __init__(
        self,
        work: JailWork,
        *,
        reactor: Reactor,
        lock: threading.RLock,
        control: WardenChannel,
        journal: JournalPort,
        parking: IdleSuspend,
        strike: Callable[[JailExit], None],
    ) -> None:
        self._work = work
        self._reactor = reactor
        self._lock = lock
        self._control = control
        self._journal = journal
        self._parking = parking
        self._strike = strike
        self._sent = False  # whether one was sent since the last cell

    def take_up(self) -> None:
        """Continues after another supervisor, which may have sent interrupts."""
        self._sent = True

    def were_sent(self) -> bool:
        """Whether one was sent since the last call of this: it may still arrive, and hit what is sent now."""
        sent, self._sent = self._sent, False
        return sent

    def interrupt(self, seat: AuthorSession | None) -> bool:
        """See `Supervisor.interrupt`."""
        running = self._work.running
        if running is None:
            return self._parking.interrupt_first(self._work.waiting, seat)
        if seat not in (None, running.request.seat):
            return False
        running.clock.interrupt(now := time.monotonic())
        self._journal.interrupted(now, expired=False)
        self._send()
        self.arm()
        return True

    def arm(self) -> None:
        """Sets the timer for when the clock of the running request next requires something."""
        running = self._work.running
        if running is None:
            return
        deadline = running.clock.deadline
        running.rearm(None if deadline is None else self._reactor.call_at(deadline, self._on_deadline))

    def _send(self) -> None:
        self._sent = True
        self._control.interrupt()

    def _on_deadline(self) -> None:
        with self._lock:
            running = self._work.running
            if running is None:
                return
            clock = running.clock
            match clock.due(time.monotonic()):
                case "interrupt":
                    self._journal.interrupted(time.monotonic(), expired=True)
                    self._send()
                case "kill":
                    now = time.monotonic()
                    self._strike(ignored(running.request, clock, now))
                    # The request is still open: the worker's successor has to answer it.
                    running.rearm(self._reactor.call_at(now + SUCCESSOR_SECONDS, self._on_deadline))
                    return
            self.arm()


_GONE: Final = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)


class DispatchOwner(Protocol):
    """What this module needs of the jail's owner, under its lock."""

    def end(self, death: JailExit) -> None:
        """Kills the jail."""


class Dispatch:
    """Of one jail, used under its lock."""

    def __init__(
        self,
        jail: DispatchOwner,
        work: JailWork,
        *,
        reactor: Reactor,
        lock: threading.RLock,
        ends: JailEnds,
        account: JailAccount,
        journal: JournalPort,
        conversation: JailConversation,
        successors: WorkerFailover,
        interrupts: RequestInterrupts,
        kept: int,
    ) -> None:
        """kept: how much of a request's output and displays is stored, see `RunningRequest.begun`."""
        self._jail = jail
        self._work = work
        self._reactor = reactor
        self._lock = lock
        self._frames = ends.frames
        self._account = account
        self._journal = journal
        self._conversation = conversation
        self._successors = successors
        self._recovery, self._control = successors.recovery, successors.control
        self._parking = successors.parking
        self._interrupts = interrupts
        self._kept = kept

    def send_next(self) -> None:
        """Sends the next waiting request, if nothing is under way."""
        if (
            self._work.running is not None
            or not self._work.waiting
            or self._conversation.phase is not Phase.IDLE
        ):
            return
        # An interrupt could hit the next cell. In either case the reader of the warden's messages calls this again.
        if self._control.interrupting or not self._parking.has_worker():
            return
        request = self._work.waiting.popleft()
        if self._successors.is_told_of_setback(request):
            self._reactor.call_soon(self._send_waiting)
            return
        self._begin(request)
        if request.ask is RequestKind.ROLLBACK:
            self._control.rollback(request.step, request.label)
            self._interrupts.arm()
        else:
            self.send(request)
        if self._parking.was_interrupted(request):
            self._interrupts.interrupt(None)

    def _begin(self, request: JailRequest) -> None:
        self._recovery.begin()
        now = time.monotonic()
        self._work.running = RunningRequest.begun(request, now, self._kept)
        number = self._conversation.ask(request.ask)
        request.address(number)
        begun = UsageBaseline()
        if request.ask is RequestKind.EXECUTE:
            begun = self._account.begin()
            request.message.execute.after_interrupt = self._interrupts.were_sent()
        self._journal.asked(number, request, now, begun)

    def send(self, request: JailRequest) -> None:
        """Sends the request, which is the running one, now."""
        try:
            send_packet(self._frames, request.message.SerializeToString(), request.descriptors)
            self._journal.sent()
        except BlockingIOError:
            self._jail.end(JailExit(reason="protocol", detail="an idle runtime does not read its requests"))
        except OSError as error:
            if error.errno not in _GONE:  # else the jail is dying, which the control channel reports
                self._unsent(request, error)
                return
        request.dispose()
        self._interrupts.arm()

    def refuse_waiting(self, error: UnavailableError) -> None:
        """Refuses the waiting requests with this error. A running request is lost with its worker."""
        if self._work.running is not None:
            self._jail.end(JailExit(reason="killed", detail=str(error)))
        for request in self._work.take_waiting():
            request.dispose()
            request.listener.done(error)

    def _unsent(self, request: JailRequest, error: OSError) -> None:
        """The system would not carry the request: too many descriptors are on their way, or no memory is left."""
        self._conversation.unsent()
        self._journal.unsent()
        self._work.running = None
        request.dispose()
        text = f"the request could not be sent to the runtime ({error.strerror}); nothing ran, try again"
        request.listener.done(UnavailableError(text))
        self._reactor.call_soon(self._send_waiting)

    def _send_waiting(self) -> None:
        with self._lock:
            self.send_next()
