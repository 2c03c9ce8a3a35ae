"""What a supervisor does when its jail's worker dies and a copy of it goes on, or is made to."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import NotKeptError, ProtocolViolation, RolledBackError, UnavailableError
from cenote_worker.frames import send_packet
from cenote_worker.results import ExecutionResult
from cenote_worker.supervisor.account import Account, Baseline
from cenote_worker.supervisor.autopsy import Death, Setback
from cenote_worker.supervisor.chronicle import Chronicle
from cenote_worker.supervisor.control import ControlLine, Told
from cenote_worker.supervisor.edge import ExecutedReply
from cenote_worker.supervisor.holds import Target
from cenote_worker.supervisor.host_watch import HostWatch
from cenote_worker.supervisor.intake import Intake
from cenote_worker.supervisor.jail_ends import JailEnds
from cenote_worker.supervisor.protocol import Ask, Conversation, NeverLeft, Phase
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.record import Printed, Record
from cenote_worker.supervisor.recovery import STRIKE_SECONDS, Recovery
from cenote_worker.supervisor.requests import JailRequest
from cenote_worker.supervisor.undoing import undoing

DROPPED = "it was given up while the cell ran: the cell wrote to so much memory that keeping it took too long"


class Revival(ABC):
    """The part of a Supervisor that is about workers that follow each other. See Observer."""

    _lock: threading.RLock
    _reactor: Reactor
    _account: Account
    _chronicle: Chronicle
    _conversation: Conversation
    _control: ControlLine
    _recovery: Recovery
    _ends: JailEnds
    _intake: Intake
    _running: Record | None
    _waiting: deque[JailRequest]
    hosts: HostWatch
    _sentence: Death | None
    death: Death | None

    @abstractmethod
    def end(self, death: Death) -> None: ...

    @abstractmethod
    def _bury(self, found: Death) -> None: ...

    @abstractmethod
    def _send(self, request: JailRequest) -> None: ...

    @abstractmethod
    def _send_next(self) -> None: ...

    @abstractmethod
    def _take_background(self) -> Printed: ...

    @property
    def head(self) -> int:
        """The step whose end the live namespace is at."""
        return self._recovery.head

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        asked = self._running is not None or self._waiting or self._control.busy
        return bool(asked or self._conversation.phase is not Phase.IDLE or self._sentence is not None)

    def begins_at(self, step: int) -> None:
        """The namespace was filled with the state after this step, before anybody else could use it."""
        with self._lock:
            self._recovery.ran(step)

    def strike(self, death: Death) -> None:
        """Kills the worker, in whose place a copy goes on; the jail where there is none, or it was of no use."""
        with self._lock:
            if self.death is not None or self._sentence is not None or self._recovery.struck is not None:
                return
            if death.reason == "memory" and self._recovery.may_relieve():
                self._control.relieve()
                return
            if not self._recovery.may_strike() or self._conversation.phase is Phase.STARTING:
                self.end(death)
                return
            self._recovery.strike(death)
            self._control.kill_worker()
            self._reactor.call_at(time.monotonic() + STRIKE_SECONDS, lambda: self._strike_harder(death))

    def _strike_harder(self, death: Death) -> None:
        if self._recovery.struck is death:
            self.end(death)

    def snapshots(self, told: Told, failed: Callable[[], None]) -> None:
        """Asks the warden what is kept; `failed` is called instead if the jail has ended."""
        with self._lock:
            if self.death is None:
                self._control.snapshots(told, failed)
                return
        failed()

    def hold(self, targets: Iterable[Target]) -> Callable[[], None]:
        """What is kept of these states stays, unless memory is short, until what this returns is called."""
        with self._lock:
            holder = self._control.holds.add(targets)
        return partial(self._let_go, holder)

    def _let_go(self, holder: object) -> None:
        with self._lock:
            self._control.holds.let_go(holder)

    def _is_told_of_setback(self, request: JailRequest) -> bool:
        """Whoever comes first after the worker has died between two requests hears of that, and nothing is run."""
        setback = self._recovery.told()
        if setback is None:
            return False
        request.dispose()
        if request.ask is Ask.EXECUTE:
            request.listener.done(setback.before_cell(request.step, request.seat.author))
        else:
            request.listener.done(UnavailableError(f"nothing ran, try again: {setback.as_error().message}"))
        return True

    def _never_left(self, found: NeverLeft) -> None:
        running, self._running = self._running, None
        assert running is not None
        running.rearm(None)
        self._recovery.found_at(found.step)
        setback = self._recovery.told()
        if setback is not None:
            running.news = found.amiss
            self._fell(running, setback, found.severed)
            return
        self._chronicle.unsent()
        text = "the runtime was taken over before the request was sent; nothing ran, try again"
        running.request.listener.done(UnavailableError(text))
        self._send_next()

    def _fell(self, running: Record, setback: Setback, severed: tuple[str, ...]) -> None:
        """The running request has died with the worker that had it."""
        self._intake.empty_pipes()
        if running.request.ask is Ask.EXECUTE:
            spent, now = self._account.spent(), time.monotonic()
            result = running.rolled_back(setback, severed, self._take_background(), spent, now)
            running.request.listener.done(result)
        else:
            error = RolledBackError(setback.death.describe(), setback.step)
            running.request.listener.done(error)
        self._send_next()

    def _ran(self, running: Record, reply: ExecutedReply) -> tuple[ExecutionResult, JailRequest | None]:
        """The result of a cell, and what has to be done before anybody hears of it."""
        before, running.news = self._recovery.head, self._recovery.news()
        self._recovery.ran(running.request.step)
        spent, now = self._account.spent(), time.monotonic()
        if spent.crowded:
            self._control.thin()
        result = running.finished(reply, self._take_background(), spent, now)
        return result, undoing(running.request, result, before)

    def ended(self, death: Death) -> None:
        self._bury(death)

    def revived(self, death: Death, step: int, pid: int) -> None:
        found = self._account.explain(death)
        if found.reason == "memory":
            self._control.thin()  # who tries again finds more room
        self._succeeded(pid)
        changed = self._recovery.revive(found, step)
        self._chronicle.moved(step, self._recovery.setback)
        if self._running is not None and self._conversation.phase is Phase.BUSY:
            self._probe()
        elif not changed:
            self._recovery.told()  # nobody was doing anything, and nothing is missing

    def dropped(self) -> None:
        if self._running is not None:
            self._running.unkept = DROPPED

    def _succeeded(self, pid: int) -> None:
        """Another process is the worker now."""
        self._account.follow(pid)
        self.hosts.abandon()

    def rolled_back(self, step: int | None, pid: int) -> None:
        running = self._running
        if running is None or running.request.ask is not Ask.ROLLBACK:
            raise ProtocolViolation("a rollback of which nobody knows")
        if step is None:
            self._conversation.unsent()
            self._chronicle.unsent()
            self._running = None
            running.rearm(None)
            running.request.listener.done(NotKeptError(running.request.label or running.request.step))
            return
        self._succeeded(pid)
        self._recovery.ran(step)
        self._chronicle.moved(step, None)
        running.request.step = step
        running.request.message.survey.SetInParent()
        self._send(running.request)

    def _find_out(self, request: JailRequest, *, sent: bool) -> None:
        """What became of a request of a former supervisor's, which may never have left or be lost."""
        if sent or request.ask is not Ask.ROLLBACK:
            self._probe()
            return
        # The warden may have been asked, and have done it. Nothing has run since: twice is as good as once. What the
        # worker may have answered to the survey behind the former try would come before the warden's answer to this.
        request.message.id = number = self._conversation.again()
        self._chronicle.asked(number, request, time.monotonic(), Baseline())
        self._control.rollback(request.step, request.label)

    def _probe(self) -> None:
        """The running request may never have been sent, or be lost: asks behind it. Which is answered first?"""
        probe = jail_pb2.Request(id=self._conversation.probe())
        probe.survey.SetInParent()
        with suppress(OSError):  # the jail is dying, which the control channel reports
            send_packet(self._ends.frames, probe.SerializeToString())
