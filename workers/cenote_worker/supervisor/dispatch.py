"""How requests are sent to a jail, one at a time, and what becomes of those that cannot be."""

from __future__ import annotations

import errno
import threading
import time
from typing import Final, Protocol

from cenote_security.errors import UnavailableError
from cenote_worker.frames import send_packet
from cenote_worker.supervisor.account import Account, Baseline
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.chronicle import Chronicle
from cenote_worker.supervisor.interrupts import Interrupts
from cenote_worker.supervisor.jail_ends import JailEnds
from cenote_worker.supervisor.protocol import Ask, Conversation, Phase
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.record import Record
from cenote_worker.supervisor.requests import JailRequest
from cenote_worker.supervisor.successors import Successors
from cenote_worker.supervisor.work import Work

_GONE: Final = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)


class Jail(Protocol):
    """What is needed of whoever owns the jail, under its lock."""

    def end(self, death: Death) -> None:
        """Kills the jail."""


class Dispatch:
    """Of one jail, used under its lock."""

    def __init__(
        self,
        jail: Jail,
        work: Work,
        *,
        reactor: Reactor,
        lock: threading.RLock,
        ends: JailEnds,
        account: Account,
        chronicle: Chronicle,
        conversation: Conversation,
        successors: Successors,
        interrupts: Interrupts,
        kept: int,
    ) -> None:
        """kept: of what a request prints and displays, see `Record.begun`."""
        self._jail = jail
        self._work = work
        self._reactor = reactor
        self._lock = lock
        self._frames = ends.frames
        self._account = account
        self._chronicle = chronicle
        self._conversation = conversation
        self._successors = successors
        self._recovery, self._control = successors.recovery, successors.control
        self._parking = successors.parking
        self._interrupts = interrupts
        self._kept = kept

    def send_next(self) -> None:
        """Whatever waits, if nothing is under way."""
        if (
            self._work.running is not None
            or not self._work.waiting
            or self._conversation.phase is not Phase.IDLE
        ):
            return
        # An interrupt could hit the next cell. In either case whoever reads what the warden says comes back here.
        if self._control.interrupting or not self._parking.has_worker():
            return
        request = self._work.waiting.popleft()
        if self._successors.is_told_of_setback(request):
            self._reactor.call_soon(self._send_waiting)
            return
        self._begin(request)
        if request.ask is Ask.ROLLBACK:
            self._control.rollback(request.step, request.label)
            self._interrupts.arm()
        else:
            self.send(request)
        if self._parking.was_interrupted(request):
            self._interrupts.interrupt(None)

    def _begin(self, request: JailRequest) -> None:
        self._recovery.begin()
        now = time.monotonic()
        self._work.running = Record.begun(request, now, self._kept)
        number = self._conversation.ask(request.ask)
        request.address(number)
        begun = Baseline()
        if request.ask is Ask.EXECUTE:
            begun = self._account.begin()
            request.message.execute.after_interrupt = self._interrupts.were_sent()
        self._chronicle.asked(number, request, now, begun)

    def send(self, request: JailRequest) -> None:
        """Now: it is the running one."""
        try:
            send_packet(self._frames, request.message.SerializeToString(), request.descriptors)
            self._chronicle.sent()
        except BlockingIOError:
            self._jail.end(Death(reason="protocol", detail="an idle runtime does not read its requests"))
        except OSError as error:
            if error.errno not in _GONE:  # else the jail is dying, which the control channel reports
                self._unsent(request, error)
                return
        request.dispose()
        self._interrupts.arm()

    def refuse_waiting(self, error: UnavailableError) -> None:
        """Whoever waits hears that. A request that was taken up is lost with its worker."""
        if self._work.running is not None:
            self._jail.end(Death(reason="killed", detail=str(error)))
        for request in self._work.take_waiting():
            request.dispose()
            request.listener.done(error)

    def _unsent(self, request: JailRequest, error: OSError) -> None:
        """The system would not carry the request: too many descriptors are on their way, or no memory is left."""
        self._conversation.unsent()
        self._chronicle.unsent()
        self._work.running = None
        request.dispose()
        text = f"the request could not be sent to the runtime ({error.strerror}); nothing ran, try again"
        request.listener.done(UnavailableError(text))
        self._reactor.call_soon(self._send_waiting)

    def _send_waiting(self) -> None:
        with self._lock:
            self.send_next()
