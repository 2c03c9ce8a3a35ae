"""The start of a history, when nobody keeps it any more: a fresh jail, while the one that there was waits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cenote_worker.history.step import START
from cenote_worker.hosted.refill import NO_REFILL, Refill
from cenote_worker.hosted.written_files import write_all, written_by
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from cenote_worker.hosted.legacy import Legacy
    from cenote_worker.hosted.runtime import HostedRuntime

_GIVEN_UP = Death(reason="reset", text="it was given up for another that has the same history")


class SecondJail:
    """Of one runtime, during one piece of work."""

    def __init__(self, runtime: HostedRuntime, legacy: Legacy) -> None:
        self._runtime = runtime
        self._legacy = legacy
        self._first: Supervisor | None = None
        self._refill: Refill = NO_REFILL
        """Of the first one."""
        self.step = START
        """Whose end state the second one began with."""

    @property
    def runs(self) -> bool:
        """Whether the first one waits."""
        return self._first is not None

    @property
    def obstacle(self) -> str:
        """Why a fresh jail does not begin as the history does; empty if it does."""
        return self._runtime.begins_otherwise

    @property
    def refill(self) -> Refill:
        """Of the runtime, put aside or not."""
        return self._refill if self.runs else self._runtime.refill

    def begin(self, *, intact: bool) -> None:
        """The history begins again. intact: nothing was done yet with the jail that there is."""
        self._wait_beside(intact=intact)
        self.step = START
        self._runtime.begin_again()
        write_all(self._runtime, written_by(self._runtime.history))

    def begin_at(self, step: int, *, intact: bool) -> None:
        """The history goes on from a step whose end state is stored. intact: as above.

        Raises NotKeptError, CheckpointError and UnavailableError, with the first one as it was.
        """
        beginning = self.refill.beginning(step)
        self._wait_beside(intact=intact)
        self.step = step
        try:
            with self._runtime.turn:
                self._runtime.refill = beginning
                try:
                    self._runtime.start()
                finally:
                    self._runtime.refill = NO_REFILL
        except BaseException:
            self.give_up()
            raise

    def _wait_beside(self, *, intact: bool) -> None:
        """Nothing is stored of the second one while it is not known whether it stays: until then whoever restores the
        runtime finds the state before.
        """
        runtime = self._runtime
        with runtime.turn:
            if self._first is None:
                self._legacy.set_aside(intact=intact)
                self._first, self._refill, runtime.refill = runtime.exchange(None), runtime.refill, NO_REFILL
                return
            former = runtime.exchange(None)
        self._end(former)

    def give_up(self) -> None:
        """The first one goes on, as it was left. If it has ended meanwhile, the runtime's owner hears of that."""
        if self._first is not None:
            with self._runtime.turn:
                self._legacy.taken_back()
                first = self._taken_back()
                second = self._runtime.exchange(first)
                if first is not None and first.death is not None:
                    self._runtime.jail.bereave(first.death)
            self._end(second)

    def stay(self) -> bool:
        """The first one ends, as soon as nobody would go on with it. Whether there is a second, of which nothing is
        stored yet.
        """
        if self._first is None:
            return False
        with self._runtime.turn:
            first = self._taken_back()
            if self.step != START:
                self._runtime.refill.goes_on_from(self.step)
        self._legacy.stays(partial(self._end, first))
        return True

    def store(self) -> None:
        """The state of the one that stays, if anything is stored of the runtime. Blocks. Raises CheckpointError."""
        self._runtime.refill.began_anew()

    def close(self) -> None:
        """The runtime is closed, by whoever has its turn: the first one ends too, if it waits."""
        first, self._first = self._first, None
        if first is not None:
            first.end(Death(reason="closed"))

    def _end(self, supervisor: Supervisor | None) -> None:
        """One of two."""
        if supervisor is not None and supervisor.death is None:
            if supervisor.hosts.has_line:
                self._runtime.replays.spare()
            supervisor.end(_GIVEN_UP)

    def _taken_back(self) -> Supervisor | None:
        """The first one, with what fills its successors."""
        self._runtime.refill, self._refill = self._refill, NO_REFILL
        first, self._first = self._first, None
        return first
