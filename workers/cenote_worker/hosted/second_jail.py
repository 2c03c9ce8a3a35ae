"""The start of a history, when nobody keeps it any more: a fresh jail, while the one that there was waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    @property
    def runs(self) -> bool:
        """Whether the first one waits."""
        return self._first is not None

    def can_begin(self, *, atomic: bool) -> bool:
        """Whether a fresh jail begins as the history does. atomic: and the one that there is can wait meanwhile."""
        return self._runtime.begins_alike and not (atomic and self._runtime.is_stored)

    def begin(self) -> None:
        """The history begins again. What was kept until now is out of reach, or gone where no jail can wait."""
        history = self._runtime.history
        begun, files = history.begun_files, written_by(history)
        if self._runtime.is_stored:
            self._runtime.reset()
        else:
            self._wait_beside()
        self._runtime.start()
        write_all(self._runtime, files)
        history.begins_with(history.begun, begun)

    def _wait_beside(self) -> None:
        former = self._runtime.exchange(None)
        if self._first is None:
            self._first = former
        else:
            _end(former)

    def give_up(self) -> None:
        """The first one goes on, as it was left."""
        if self._first is not None:
            second = self._runtime.exchange(self._first)
            self._first = None
            _end(second)

    def stay(self) -> None:
        """The first one is needed no more."""
        first, self._first = self._first, None
        _end(first)


def _end(supervisor: Supervisor | None) -> None:
    if supervisor is not None:
        supervisor.end(_GIVEN_UP)
