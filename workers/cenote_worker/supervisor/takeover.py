"""How a supervisor goes on where a former one of its jail was ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from cenote_worker.frames import Packet
from cenote_worker.results import StreamName
from cenote_worker.supervisor.account import Account
from cenote_worker.supervisor.chronicle import Piece, Succession, Underway
from cenote_worker.supervisor.intake import Intake
from cenote_worker.supervisor.interrupts import Interrupts
from cenote_worker.supervisor.protocol import Conversation
from cenote_worker.supervisor.record import Record
from cenote_worker.supervisor.successors import Successors
from cenote_worker.supervisor.work import Work


class Takeover:
    """Of one jail, once, under its lock and before anything of it is watched."""

    def __init__(
        self,
        work: Work,
        *,
        account: Account,
        conversation: Conversation,
        successors: Successors,
        intake: Intake,
        interrupts: Interrupts,
        printed: Callable[[StreamName, str], None],
        kept: int,
    ) -> None:
        """printed: hears what was printed through pipes. kept: see `Record.begun`."""
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

    def take_up(self, left: Succession) -> None:
        """All that the former supervisor knew is known, and what it has waited for is waited for."""
        left.skip()
        self._control.take_up()
        self._parking.take_up()
        self._interrupts.take_up()
        asked = time.monotonic_ns()  # see Successors._probe
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

    def _take_up_request(self, under: Underway) -> None:
        self._work.running = Record.taken_up(under, self._kept)
        for piece in under.heard:
            self._replay(piece)
        if self._work.running is not None:
            if not under.sent or self._recovery.setback is not None:
                self._parking.once_there(lambda: self._find_out(under))
            self._interrupts.arm()

    def _find_out(self, under: Underway) -> None:
        running = self._work.running
        if running is not None and running.request is under.request:
            self._successors.find_out(under.request, sent=under.sent)

    def _replay(self, piece: Piece) -> None:
        if isinstance(piece, Packet):
            self._intake.replay(piece)
        else:
            self._printed(*piece)
