"""The start of a history, when nobody keeps it any more: a fresh jail, while the one that there was waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_worker.hosted.refill import NO_REFILL, Refill
from cenote_worker.hosted.written_files import write_all, written_by
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from cenote_worker.hosted.runtime import HostedRuntime

_GIVEN_UP = Death(reason="reset", text="it was given up for another that has the same history")


class SecondJail:
    """Of one runtime, during one piece of work."""

    def __init__(self, runtime: HostedRuntime) -> None:
        self._runtime = runtime
        self._first: Supervisor | None = None
        self._refill: Refill = NO_REFILL
        """Of the first one."""

    @property
    def runs(self) -> bool:
        """Whether the first one waits."""
        return self._first is not None

    def can_begin(self, *, atomic: bool) -> bool:
        """Whether a fresh jail begins as the history does. atomic: and the one that there is can wait meanwhile."""
        return not self.obstacle(atomic=atomic)

    def obstacle(self, *, atomic: bool) -> str:
        """Why it cannot begin; empty if it can."""
        if atomic and self._runtime.is_left:
            return "a runtime of a platform has one jail at a time"
        return self._runtime.begins_otherwise

    def begin(self) -> None:
        """The history begins again. What was kept until now is out of reach, or gone where no jail can wait."""
        history = self._runtime.history
        begun, files = history.begun_files, written_by(history)
        if self._runtime.is_left:
            self._runtime.reset()
        else:
            self._wait_beside()
        self._runtime.start()
        write_all(self._runtime, files)
        history.begins_with(history.begun, begun)

    def _wait_beside(self) -> None:
        """Nothing is stored of the second one while it is not known whether it stays: until then whoever restores the
        runtime finds the state before.
        """
        runtime = self._runtime
        with runtime.turn:
            former = runtime.exchange(None)
            if self._first is None:
                self._first, self._refill, runtime.refill = former, runtime.refill, NO_REFILL
                return
        _end(former)

    def give_up(self) -> None:
        """The first one goes on, as it was left."""
        if self._first is not None:
            with self._runtime.turn:
                second = self._runtime.exchange(self._taken_back())
            _end(second)

    def stay(self) -> bool:
        """The first one is needed no more. Whether there is a second, of which nothing is stored yet."""
        if self._first is None:
            return False
        with self._runtime.turn:
            first = self._taken_back()
        _end(first)
        return True

    def store(self) -> None:
        """The state of the one that stays, if anything is stored of the runtime. Blocks. Raises CheckpointError."""
        self._runtime.refill.began_anew()

    def _taken_back(self) -> Supervisor | None:
        """The first one, with what fills its successors."""
        self._runtime.refill, self._refill = self._refill, NO_REFILL
        first, self._first = self._first, None
        return first


def _end(supervisor: Supervisor | None) -> None:
    if supervisor is not None:
        supervisor.end(_GIVEN_UP)
