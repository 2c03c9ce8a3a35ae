"""How a supervisor ends a jail, and what becomes of the requests that it no longer answers.

A jail is ended for a reason, reported when it is gone, or left to another supervisor without being ended.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from cenote_security.errors import JailLostError
from cenote_worker.supervisor.account.jail_account import JailAccount, MeasuredUsage
from cenote_worker.supervisor.channels.jail_reader import HostCallReader, JailReader
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.jail_handle import JailEnds, JailHandle
from cenote_worker.supervisor.journal_port import JournalPort
from cenote_worker.supervisor.protocol import JailConversation, RequestKind
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.requests import JailRequest
from cenote_worker.supervisor.running_request import CellClock, JailWork, RunningRequest
from cenote_worker.supervisor.worker_failover import WorkerFailover

_CALL: Final = "a call ran out of time, ignored the interrupt and was killed"


def ignored(request: JailRequest, clock: CellClock, now: float) -> JailExit:
    """The reason to end a jail whose request was interrupted and went on."""
    if not clock.expired:
        return JailExit(reason="interrupt")
    text = "" if request.ask is RequestKind.EXECUTE else _CALL
    return JailExit(
        reason="time", text=text, detail=f"used {now - clock.started:.1f} s of {clock.timeout:g} s"
    )


def decline(request: JailRequest, death: JailExit) -> None:
    """Declines a request that came after the jail's end, or was waiting at that time."""
    request.dispose()
    if request.ask is RequestKind.EXECUTE:
        request.listener.done(death.before(request.step, request.seat.author))
    else:
        request.listener.done(JailLostError(death.describe()))


def expired(limit: float | None) -> JailExit:
    """The end of a jail whose runtime had this many seconds."""
    return JailExit(reason="time", text=f"the runtime's time of {limit:g} s was over and it was ended")


class Termination:
    """The end of one jail.

    death: set when it has ended. is_left: a successor may continue; nothing is read or decided here any more.
    """

    def __init__(
        self,
        work: JailWork,
        *,
        reactor: Reactor,
        lock: threading.RLock,
        account: JailAccount,
        journal: JournalPort,
        conversation: JailConversation,
        successors: WorkerFailover,
        intake: JailReader,
        hosts: HostCallReader,
        ends: JailEnds,
        handle: JailHandle,
    ) -> None:
        self._work = work
        self._reactor = reactor
        self._lock = lock
        self._account = account
        self._journal = journal
        self._conversation = conversation
        self._recovery, self._control = successors.recovery, successors.control
        self._parking = successors.parking
        self._programs = successors.programs
        self._intake = intake
        self._hosts = hosts
        self._ends = ends
        self._handle = handle
        self._sentence: JailExit | None = None
        self.death: JailExit | None = None
        self.is_left = False

    @property
    def is_sentenced(self) -> bool:
        """Whether the jail is about to be ended, or was."""
        return self._sentence is not None

    def end(self, death: JailExit) -> None:
        """See `Supervisor.end`."""
        with self._lock:
            if self.death is None and self._sentence is None:
                self._sentence = death
                self._intake.deafen()
                self._handle.kill()

    def bury(self, found: JailExit) -> None:
        """The jail has ended: `found` is what is known of it unless this supervisor ended it."""
        with self._lock:
            if self.death is not None:
                return
            # A jail that broke the protocol is not read any more.
            self._intake.last_words(trusted=self._sentence is None or self._sentence.reason != "protocol")
            self.death = self._sentence or self._recovery.struck or self._account.explain(found)
            self._conversation.end()
            running, self._work.running = self._work.running, None
            waiting = self._work.take_waiting()
        spent = self._account.spent()
        self._account.close()
        self._control.close()
        self._handle.make_sure()
        self._release()
        if running is not None:
            self._report_lost(running, self.death, spent)
        for request in waiting:
            decline(request, self.death)
        self._journal.ended(self.death)

    def leave(self) -> None:
        """Releases a jail that is not read any more. Not on the reactor's thread or under the lock: waits for it."""
        over = threading.Event()
        self._reactor.call_soon(lambda: self._leave(over))
        over.wait()

    def deafen(self) -> None:
        """Under the lock: everything the jail sends from now on is for a successor."""
        self.is_left = True
        self._intake.deafen()
        self._hosts.deafen()

    def _leave(self, over: threading.Event) -> None:
        try:
            with self._lock:
                self._account.let_go()
                self._release()
        finally:
            over.set()

    def _report_lost(self, running: RunningRequest, death: JailExit, spent: MeasuredUsage) -> None:
        running.rearm(None)
        if running.request.ask is RequestKind.EXECUTE:
            result = running.lost(death, self._work.take_background(), spent, time.monotonic())
            running.request.listener.done(result)
        else:
            running.request.listener.done(JailLostError(death.describe()))

    def _release(self) -> None:
        self._parking.close()
        self._programs.close("" if self.death is None else self.death.describe())
        self._intake.close()
        self._reactor.unwatch(self._ends.control.fileno())
        self._hosts.close()
        self._handle.release()
