"""Which jail a runtime has now, and who has still to hear that a former one has ended. No lock, no I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.requests import OWNER, Seat
from cenote_worker.supervisor.supervisor import Supervisor

RESET: Final = Death(reason="reset", text="the owner of the runtime has reset it")


class CurrentJail:
    """Of one runtime, whose `turn` its callers have; only `heard` and `lost` are called on any thread, without it."""

    def __init__(self, is_stored: Callable[[], bool]) -> None:
        """is_stored: see `Supervisor.is_stored`."""
        self._is_stored = is_stored
        self._supervisor: Supervisor | None = None
        self._relied: dict[Seat, Supervisor | None] = {}
        """The jail that each seat has used, None while it is taken over; no entry once its holder heard its end."""
        self._bereft: Death | None = None

    @property
    def supervisor(self) -> Supervisor | None:
        """Of the jail that runs now, or of the last one."""
        return self._supervisor

    @supervisor.setter
    def supervisor(self, supervisor: Supervisor | None) -> None:
        self._supervisor = supervisor
        if supervisor is not None:
            supervisor.is_stored = self._is_stored

    @property
    def running(self) -> Supervisor | None:
        """Of the jail that runs now, if one does."""
        supervisor = self.supervisor
        return supervisor if supervisor is not None and supervisor.death is None else None

    # -- one after the other --

    def exchange(self, supervisor: Supervisor | None) -> Supervisor | None:
        """Gives the former one, of whose end nobody hears. The other one is next; None for a fresh one."""
        former, self.supervisor = self.supervisor, supervisor
        self._relied.clear()
        return former

    def dismiss(self) -> Supervisor | None:
        """Gives the one that there is, which its owner gives up; whoever else has used it hears of that."""
        former, self.supervisor = self.supervisor, None
        self._relied.pop(OWNER, None)
        return former

    # -- what another process has left --

    def take_over(self, supervise: Callable[[], Supervisor]) -> Supervisor:
        """Goes on with the jail that `supervise` gives."""
        self._relied[OWNER] = None  # before anybody can hear of its end
        self.supervisor = supervisor = supervise()
        if OWNER in self._relied:
            self._relied[OWNER] = supervisor
        return supervisor

    def bereave(self, death: Death) -> None:
        """The jail that was left is not there any more, and nobody was told."""
        self._bereft = death

    def lost(self) -> None:
        """The owner has heard that the jail which was left ended, and has not to be told again."""
        self._relied.pop(OWNER, None)
        self._bereft = None

    # -- who relies on it --

    def used(self, seat: Seat, supervisor: Supervisor) -> None:
        """The seat's holder is to hear when this jail ends."""
        self._relied[seat] = supervisor

    def vacate(self, seat: Seat) -> Supervisor | None:
        """Its holder has gone. Gives the jail that they have used."""
        return self._relied.pop(seat, None)

    def unheard(self, seat: Seat) -> Death | None:
        """How the jail that the seat has used ended, if it did: given once."""
        if seat is OWNER and self._bereft is not None:
            death, self._bereft = self._bereft, None
            return death
        supervisor = self._relied.get(seat)
        if supervisor is None or (supervisor is self.supervisor and supervisor.death is None):
            return None
        self.heard(seat, supervisor)
        return supervisor.death or RESET

    def heard(self, seat: Seat, supervisor: Supervisor) -> None:
        """The seat's holder has heard that this jail ended, and has not to be told again."""
        if self._relied.get(seat) is supervisor:
            del self._relied[seat]
        if seat is OWNER:
            supervisor.mourned()
