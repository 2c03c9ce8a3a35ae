"""The start of a history, when nobody keeps it any more: a fresh jail, while the one that there was waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cenote_worker.hosted import asks
from cenote_worker.hosted.files import FileAsk
from cenote_worker.hosted.listeners import Delivery
from cenote_worker.hosted.refusals import as_error
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.edge import RefusedReply
from cenote_worker.supervisor.requests import OWNER
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
        files = self._runtime.history.begun_files
        if self._runtime.is_stored:
            self._runtime.reset()
        else:
            self._wait_beside()
        self._runtime.start()
        self._write(files)

    def _wait_beside(self) -> None:
        former = self._runtime.exchange(None)
        if self._first is None:
            self._first = former
        else:
            _end(former)

    def _write(self, files: Mapping[str, str]) -> None:
        """What clients had written before the first step. Raises what keeps one of them from being there."""
        history = self._runtime.history
        for path, digest in files.items():
            waiting = Delivery()
            ask = FileAsk.written(path, history.files[digest] or b"")
            self._runtime.submissions.submit(asks.file(ask, waiting, OWNER))
            outcome = waiting.outcomes.get()
            if isinstance(outcome, RefusedReply):
                raise as_error(outcome, path)
            if isinstance(outcome, Exception):
                raise outcome
        history.begins_with(history.begun, files)

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
