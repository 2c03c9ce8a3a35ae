"""When the worker of a jail that has nothing to do is ended, and made again: nobody notices but by what it costs.

Whether that can be done the warden knows, see `zygote.parking`. Here is when: after a while in which nothing was
asked. The next request waits until the worker is there again, so none is under way while there is no worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

from cenote_security.errors import UnavailableError
from cenote_worker.supervisor.account import Account
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.control import ControlLine
from cenote_worker.supervisor.reactor import Reactor, Timer
from cenote_worker.supervisor.recovery import Recovery
from cenote_worker.supervisor.requests import JailRequest, Seat

IDLE_SECONDS = 10.0
"""Until a worker is ended. It costs some 20 ms of CPU time to have it again, and what its pages have cost."""

COMING_SECONDS: Final = 20.0
"""As long as a jail has to start: one that cannot have its worker by then is ended."""

_NONE_CAME: Final = "the runtime's process could not be started again; nothing ran, try again"


class Jail(Protocol):
    """What is needed of whoever owns the jail, under its lock."""

    @property
    def is_parkable(self) -> bool:
        """Whether it lives, nothing is under way, and the state is that of the step that it is at the end of."""

    def end(self, death: Death) -> None:
        """Kills the jail."""

    def refuse_waiting(self, error: UnavailableError) -> None:
        """Whoever waits hears that: there is no worker, and none can be had."""

    def send_next(self) -> None:
        """Whatever waits, if nothing is under way."""


class Presence(Enum):
    """Of the worker. UNKNOWN: a former supervisor may have ended it."""

    THERE = auto()
    UNKNOWN = auto()
    LEAVING = auto()
    AWAY = auto()
    COMING = auto()


class Parking:
    """Of one jail, used under its lock."""

    def __init__(
        self,
        jail: Jail,
        *,
        reactor: Reactor,
        lock: threading.RLock,
        control: ControlLine,
        account: Account,
        recovery: Recovery,
    ) -> None:
        self._jail = jail
        self._reactor = reactor
        self._lock = lock
        self._control = control
        self._account = account
        self._recovery = recovery
        self._presence = Presence.THERE
        self._timer: Timer | None = None
        self._idle_since = 0.0
        self._once_there: Callable[[], None] | None = None
        self._interrupted: JailRequest | None = None

    def take_up(self) -> None:
        """Goes on behind another supervisor."""
        self._presence = Presence.UNKNOWN
        self.rest()

    def rest(self) -> None:
        """Nothing is under way just now. One timer for many cells: most come and go long before it."""
        self._idle_since = time.monotonic()
        if self._timer is None:
            self._arm()

    def _arm(self) -> None:
        self._timer = self._reactor.call_at(self._idle_since + IDLE_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
            if self._presence not in (Presence.THERE, Presence.UNKNOWN) or not self._jail.is_parkable:
                return
            if time.monotonic() < self._idle_since + IDLE_SECONDS:
                self._arm()
            else:
                self._presence = Presence.LEAVING
                self._control.park(self._recovery.head)

    def has_worker(self) -> bool:
        """Whether one is there that hears a request. If not, `send_next` is called once one is."""
        if self._presence in (Presence.UNKNOWN, Presence.AWAY):
            self._presence = Presence.COMING
            self._control.unpark()
            self._within(COMING_SECONDS, self._on_late)
        return self._presence is Presence.THERE

    def interrupt_first(self, waiting: Sequence[JailRequest], seat: Seat | None) -> bool:
        """Whether the first that waits would be running if the worker were there: then it is, as soon as it runs.

        seat: as `Supervisor.interrupt` has it.
        """
        late = waiting and self._presence in (Presence.LEAVING, Presence.COMING)
        if not late or seat not in (None, waiting[0].seat):
            return False
        self._interrupted = waiting[0]
        return True

    def was_interrupted(self, request: JailRequest) -> bool:
        """Before it was sent, which it just was."""
        interrupted, self._interrupted = self._interrupted, None
        return interrupted is request

    def once_there(self, then: Callable[[], None]) -> None:
        """Calls back when whatever the warden was asked before is over, and a worker is there."""
        if self.has_worker():
            then()
        else:
            self._once_there = then

    def _within(self, seconds: float, late: Callable[[], None]) -> None:
        self.close()
        self._timer = self._reactor.call_at(time.monotonic() + seconds, late)

    def _on_late(self) -> None:
        with self._lock:
            self._jail.end(Death(reason="killed", detail=f"it did not start again in {COMING_SECONDS:g} s"))

    def parked(self, *, is_parked: bool) -> None:
        """The worker has ended, or cannot."""
        self._presence = Presence.AWAY if is_parked else Presence.THERE

    def unparked(self, pid: int) -> None:
        """A worker is there; 0: none can be had just now."""
        self.close()
        if pid:
            self._account.follow(pid)
            self._presence = Presence.THERE
            self.rest()
            then, self._once_there = self._once_there, None
            if then is not None:
                then()
        else:
            self._presence = Presence.AWAY
            self._jail.refuse_waiting(UnavailableError(_NONE_CAME))

    def replaced(self) -> None:
        """Another worker is there. What the warden was asked for it answers all the same."""
        if self._presence is Presence.AWAY:
            self._presence = Presence.THERE
            self.rest()

    def close(self) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
