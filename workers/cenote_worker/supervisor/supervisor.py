"""Owns one jail: sends it requests, reads what it says, ends it when it must.

Decisions are made elsewhere (`protocol`, `clock`, `edge`, `autopsy`); this joins them to descriptors. All of it
runs on the reactor's thread, except that a request to an idle jail is sent by its caller at once.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from functools import partial

from cenote_security.errors import JailLostError, ProtocolViolation, UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.service import OpenSession
from cenote_worker.frames import Packet, send_packet
from cenote_worker.pieces import Assembly
from cenote_worker.results import JailStatus, StreamName
from cenote_worker.supervisor import edge
from cenote_worker.supervisor.account import Account, Baseline, Spent
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.chronicle import UNWRITTEN, Chronicle, Piece, Succession, Underway
from cenote_worker.supervisor.farewell import decline, expired, ignored
from cenote_worker.supervisor.grip import Grip
from cenote_worker.supervisor.host_watch import HostWatch
from cenote_worker.supervisor.intake import Intake
from cenote_worker.supervisor.jail_ends import JailEnds
from cenote_worker.supervisor.protocol import Ask, Conversation, NeverLeft, Phase
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.record import Record
from cenote_worker.supervisor.requests import JailRequest, Outcome, Seat
from cenote_worker.supervisor.successors import Successors
from cenote_worker.supervisor.waiting import enqueue, withdrawn
from cenote_worker.supervisor.work import Work

_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)


class Supervisor:
    """One jail and the requests to it, answered in the order in which they came."""

    def __init__(
        self,
        reactor: Reactor,
        ends: JailEnds,
        policy: SandboxPolicy,
        account: Account,
        buried: Callable[[], None],
        egress: OpenSession | None = None,
        ends_at: float | None = None,
        chronicle: Chronicle = UNWRITTEN,
        succession: Succession | None = None,
    ) -> None:
        """buried: called once, when the jail has ended. egress: its way out, if any.

        ends_at: when it is ended in any case, monotonic. succession: how a former supervisor left it.
        """
        self._reactor = reactor
        self._lock = threading.RLock()
        self._ends = ends
        self._policy = policy
        self.isolation: str = ends.isolation
        self._account = account
        self.sparing = account.sparing
        self._grip = Grip(reactor, self._lock, ends, egress, buried)
        self._chronicle = chronicle
        self._value_limit = 2 * policy.memory_bytes
        self._intake = Intake(
            reactor,
            self._lock,
            ends,
            chronicle,
            self.new_assembly(),
            partial(edge.parse, display_limit=policy.output_bytes, value_limit=self._value_limit),
            self,
        )
        self.hosts = HostWatch(reactor, self._lock, self.violated)
        self._conversation = Conversation()
        self._work = Work()
        self._left = False
        """Set when a successor may go on: nothing is read or decided here any more."""
        self._sentence: Death | None = None
        self.death: Death | None = None
        self._interrupted = False  # an interrupt was sent since the last cell was
        self._successors = Successors(
            self,
            self._work,
            reactor=reactor,
            lock=self._lock,
            ends=ends,
            account=account,
            chronicle=chronicle,
            conversation=self._conversation,
            intake=self._intake,
            hosts=self.hosts,
        )
        self._recovery, self._control = self._successors.recovery, self._successors.control
        self._parking = self._successors.parking
        self.is_stored: Callable[[], bool] = (
            _nothing_is_stored if succession is None else succession.is_stored
        )
        """Whether another jail begins with what everybody was told last: then this one never goes on from a state
        before that. On any thread, under the lock."""
        self.strike = self._successors.strike
        """See there, as for what is asked of the warden about kept states."""
        self.hold, self.snapshots = self._successors.hold, self._successors.snapshots
        self._grip.call_at(ends_at, self._expire)
        account.watch(self.strike)
        if succession is not None:
            self._take_up(succession)
        reactor.call_soon(self._watch)

    def _take_up(self, left: Succession) -> None:
        """Goes on where a former supervisor was ended."""
        with self._lock:
            left.skip()
            self._control.take_up()
            self._parking.take_up()
            self._interrupted = True  # for all that is known
            for former in left.answered:
                self._conversation.take_up(former.number, former.request.ask, ready=True)
                self._account.resume(former.begun)
                self._take_up_request(former)
            under = left.underway
            ask = under.request.ask if under is not None else None
            self._conversation.take_up(left.number, ask, ready=left.ready)
            self._account.resume(left.begun)
            self._recovery.head, self._recovery.setback = left.head, left.setback
            for piece in left.background:
                self._replay(piece)
            if under is None:
                self._account.spent()  # no cell is running
            else:
                self._take_up_request(under)

    def _take_up_request(self, under: Underway) -> None:
        self._work.running = Record.taken_up(under, self._policy.output_bytes)
        for piece in under.heard:
            self._replay(piece)
        if self._work.running is not None:
            if not under.sent or self._recovery.setback is not None:
                self._parking.once_there(lambda: self._find_out(under))
            self._arm()

    def _find_out(self, under: Underway) -> None:
        running = self._work.running
        if running is not None and running.request is under.request:
            self._successors.find_out(under.request, sent=under.sent)

    def _replay(self, piece: Piece) -> None:
        if not isinstance(piece, Packet):
            self._print(*piece)
            return
        self._intake.replay(piece)

    @property
    def head(self) -> int:
        """The step whose end the live namespace is at."""
        return self._recovery.head

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        asked = self._work.is_there or self._control.busy
        return bool(asked or self._conversation.phase is not Phase.IDLE or self.is_sentenced)

    @property
    def is_parkable(self) -> bool:
        """See `parking.Jail`."""
        recovery = self._recovery
        at_rest = self.death is None and not (self._left or self.busy)
        return at_rest and recovery.struck is None and not recovery.touched

    def begins_at(self, step: int) -> None:
        """The namespace was filled with the state after this step, before anybody else could use it."""
        with self._lock:
            self._recovery.ran(step)

    @property
    def limits(self) -> str:
        """Who holds the limits of the jail as a whole: see Account.mode."""
        return self._account.mode

    def new_assembly(self) -> Assembly | None:
        """What puts packets of this jail together, if it must send them in pieces; one for each socket."""
        limit = max(self._value_limit, self._policy.output_bytes) + edge.MAX_REPLY
        return Assembly(limit) if self.isolation == "gvisor" else None

    # -- what callers do, from any thread --

    def submit(self, request: JailRequest) -> None:
        """Queues a request; its listener hears the rest. A request to a dead jail is done at once."""
        with self._lock:
            if self.death is None:
                enqueue(self._work.waiting, request)
                self.send_next()
                return
        decline(request, self.death)

    def withdraw(self, request: JailRequest, *, waiting: bool = True) -> None:
        """Takes a request back: see Withdraw."""
        with self._lock:
            if request in self._work.waiting:
                if not waiting:
                    return
                self._work.waiting.remove(request)
                request.dispose()
                request.listener.done(UnavailableError("the request was withdrawn before it was carried out"))
            elif self._work.running is not None and self._work.running.request is request:
                self.interrupt()

    def vacate(self, seat: Seat) -> list[JailRequest]:
        """The seat's holder has gone: interrupts what runs of theirs. Gives what waited, which its taker ends."""
        with self._lock:
            self.interrupt(seat)
            return withdrawn(self._work.waiting, seat)

    def interrupt(self, seat: Seat | None = None) -> bool:
        """Interrupts the running cell; kills the jail if it goes on. False when nothing runs.

        seat: only if it is of this seat; False when another's runs.
        """
        with self._lock:
            if self._work.running is None:
                return self._parking.interrupt_first(self._work.waiting, seat)
            if seat not in (None, self._work.running.request.seat):
                return False
            self._work.running.clock.interrupt(now := time.monotonic())
            self._chronicle.interrupted(now, expired=False)
            self._send_interrupt()
            self._arm()
            return True

    def _send_interrupt(self) -> None:
        self._interrupted = True
        self._control.interrupt()

    def status(self, answer: Callable[[JailStatus | None], None]) -> None:
        """Asks the warden; `answer` is called, on any thread, with None if the jail has ended."""
        with self._lock:  # to the end: the answer must not come before the question is noted
            if self.death is not None:
                answer(None)
                return
            running = self._work.running.request if self._work.running is not None else None
            cell = running if running is not None and running.ask is Ask.EXECUTE else None

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

    def let_go(self) -> bool:
        """Leaves an idle jail to a successor, as the end of this process would. False while anything is under way.

        Not on the reactor's thread: waits until that has let go.
        """
        with self._lock:
            if self.busy:
                return False
            self._left = True
            self._intake.deafen()
            self.hosts.deafen()
        over = threading.Event()
        self._reactor.call_soon(lambda: self._leave(over))
        over.wait()
        return True

    def _leave(self, over: threading.Event) -> None:
        try:
            with self._lock:
                self._account.let_go()
                self._release()
        finally:
            over.set()

    def resume(self) -> None:
        """The listener can take output again."""
        self._reactor.call_soon(self._resume)

    def mourned(self) -> None:
        """The runtime's owner was told of this jail's end, or asked for it: a successor tells nobody again."""
        self._chronicle.mourned()

    def end(self, death: Death) -> None:
        """Kills the jail. Its callers hear the reason as soon as it is gone."""
        with self._lock:
            if self.death is None and self._sentence is None:
                self._sentence = death
                self._intake.deafen()
                self._grip.kill()

    @property
    def is_sentenced(self) -> bool:
        """Whether the jail is about to be ended, or was."""
        return self._sentence is not None

    # -- sending, under the lock --

    def send_next(self) -> None:
        """Whatever waits, if nothing is under way."""
        if (
            self._work.running is not None
            or not self._work.waiting
            or self._conversation.phase is not Phase.IDLE
        ):
            return
        # An interrupt could hit the next cell. In either case `_on_control` comes back here.
        if self._control.interrupting or not self._parking.has_worker():
            return
        request = self._work.waiting.popleft()
        if self._successors.is_told_of_setback(request):
            self._reactor.call_soon(self._send_waiting)
            return
        self._recovery.begin()
        now = time.monotonic()
        self._work.running = Record.begun(request, now, self._policy.output_bytes)
        number = self._conversation.ask(request.ask)
        request.address(number)
        begun = Baseline()
        if request.ask is Ask.EXECUTE:
            begun = self._account.begin()
            request.message.execute.after_interrupt, self._interrupted = self._interrupted, False
        self._chronicle.asked(number, request, now, begun)
        if request.ask is Ask.ROLLBACK:
            self._control.rollback(request.step, request.label)
            self._arm()
        else:
            self.send(request)
        if self._parking.was_interrupted(request):
            self.interrupt()

    def refuse_waiting(self, error: UnavailableError) -> None:
        """Whoever waits hears that. A request that was taken up is lost with its worker."""
        if self._work.running is not None:
            self.end(Death(reason="killed", detail=str(error)))
        for request in self._work.take_waiting():
            request.dispose()
            request.listener.done(error)

    def send(self, request: JailRequest) -> None:
        """Now: it is the running one."""
        try:
            send_packet(self._ends.frames, request.message.SerializeToString(), request.descriptors)
            self._chronicle.sent()
        except BlockingIOError:
            self.end(Death(reason="protocol", detail="an idle runtime does not read its requests"))
        except OSError as error:
            if error.errno not in _GONE:  # else the jail is dying, which the control channel reports
                self._unsent(request, error)
                return
        request.dispose()
        self._arm()

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

    def _arm(self) -> None:
        running = self._work.running
        if running is None:
            return
        deadline = running.clock.deadline
        running.rearm(None if deadline is None else self._reactor.call_at(deadline, self._on_deadline))

    def _on_deadline(self) -> None:
        with self._lock:
            if self._work.running is None:
                return
            clock = self._work.running.clock
            match clock.due(time.monotonic()):
                case "interrupt":
                    self._chronicle.interrupted(time.monotonic(), expired=True)
                    self._send_interrupt()
                case "kill":
                    self.strike(ignored(clock, time.monotonic()))
                    return
            self._arm()

    def _expire(self) -> None:
        self.end(expired(self._policy.runtime_timeout))

    # -- hearing, on the reactor's thread --

    def _watch(self) -> None:
        if self.death is None:
            self._reactor.watch(self._ends.control.fileno(), self._on_control)
            self._intake.watch()

    def heard(self, event: edge.JailEvent) -> None:
        try:
            reply = self._conversation.hear(event) if self._sentence is None else None
        except ProtocolViolation:
            edge.discard(event)
            raise
        if reply is None:
            edge.discard(event)
        if isinstance(event, edge.OutputEvent):
            self._print(event.stream, event.text)
        elif isinstance(event, edge.DisplayEvent) and self._work.running is not None:
            self._work.running.display(event)
        elif isinstance(reply, NeverLeft):
            self._successors.never_left(reply)
        elif reply is not None:
            self._finish(reply)
        else:  # the jail has said that it is ready, or answered a question that nobody has asked for its own sake
            self.send_next()

    def _on_control(self) -> None:
        with self._lock:
            if self._left:
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

    def piped(self, stream: StreamName, text: str) -> None:
        self._chronicle.printed(stream, text)
        self._print(stream, text)

    def _print(self, stream: StreamName, text: str) -> None:
        running = self._work.running
        if running is None:
            self._work.background.add(stream, text)
            return
        running.printed.add(stream, text)
        if not running.request.listener.output(stream, text):
            self._intake.pause()

    def _resume(self) -> None:
        with self._lock:
            self._intake.resume()

    # -- ending --

    def _finish(self, reply: edge.ReplyBody) -> None:
        self._intake.empty_pipes()
        running = self._work.take_running()
        outcome: Outcome
        if isinstance(reply, edge.ExecutedReply):
            outcome, undo = self._successors.ran(running, reply)
            if undo is not None:
                self._work.waiting.appendleft(undo)
                self.send_next()
                return
        else:
            outcome = self._recovery.answered(running.request, reply)
        try:
            # Before the next is sent: a chronicle has one request under way.
            running.request.listener.done(outcome)
        finally:
            self.send_next()
            if self._work.running is None:
                self._parking.rest()
                self._chronicle.rest()

    def bury(self, found: Death) -> None:
        """The jail has ended: `found` is what is known of it unless we sentenced it ourselves."""
        with self._lock:
            if self.death is not None:
                return
            # Nothing from a jail that broke the protocol.
            self._intake.last_words(trusted=self._sentence is None or self._sentence.reason != "protocol")
            self.death = self._sentence or self._recovery.struck or self._account.explain(found)
            self._conversation.end()
            running, self._work.running = self._work.running, None
            waiting = self._work.take_waiting()
        spent = self._account.spent()
        self._account.close()
        self._control.close()
        self._release()
        if running is not None:
            self._report_lost(running, self.death, spent)
        for request in waiting:
            decline(request, self.death)
        self._chronicle.ended(self.death)

    def _report_lost(self, running: Record, death: Death, spent: Spent) -> None:
        running.rearm(None)
        if running.request.ask is Ask.EXECUTE:
            result = running.lost(death, self._work.take_background(), spent, time.monotonic())
            running.request.listener.done(result)
        else:
            running.request.listener.done(JailLostError(death.describe()))

    def _release(self) -> None:
        self._parking.close()
        self._intake.close()
        self._reactor.unwatch(self._ends.control.fileno())
        self.hosts.close()
        self._grip.release()


def _nothing_is_stored() -> bool:
    return False


def _broken(violation: ProtocolViolation) -> Death:
    return Death(reason="protocol", detail=str(violation))
