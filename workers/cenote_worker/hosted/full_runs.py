"""Full runs of a runtime's history in another jail, for clients that are elsewhere: they look at what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

from cenote_security.errors import UnavailableError
from cenote_worker.begun_threads import begin_thread
from cenote_worker.hosted.listeners import Admission
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.results import RanInFull
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.requests import Listener

MOST: Final = 2
"""At a time: two are compared where a state is not that of the first."""

KEPT_SECONDS: Final = 600.0
"""For which one can be looked at: longer than comparing a namespace takes, and no second runtime for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullRunWatch:
    """begun: is told of the runtime that it happens in, before any step. cancelled: is asked before each.

    admission: of the cells among them.
    """

    begun: Callable[[HostedRuntime], None]
    cancelled: Callable[[], bool]
    admission: Admission


@dataclass(frozen=True, slots=True, kw_only=True)
class FullRun:
    """steps: as they are numbered in that runtime, up to one that would have called outside what was not recorded."""

    runtime: HostedRuntime
    steps: tuple[int, ...]


RunInFull = Callable[[FullRunWatch], AbstractContextManager[FullRun]]
"""Entering it blocks until the steps have run; what they have left is there inside. Raises CenoteError."""


def not_in_full(runtime: HostedRuntime) -> str:
    """Why no history of it can be run in full, whatever its steps are, in one sentence; empty if it can."""
    if runtime.earlier is not None:
        return "the history begins with a state that was restored, not with the start of a runtime"
    if why := runtime.begins_otherwise:
        return f"the start of the history cannot be made again: {why}"
    if any(mount.writable for mount in runtime.policy.mounts):
        return "steps may write to mounted folders, which are not written to twice"
    if runtime.network_log:
        return "steps have reached for the network, which is not asked twice"
    return ""


class _Run:
    def __init__(self, client: str, key: str) -> None:
        self.client = client
        self.key = key
        self.over = threading.Event()
        """Nobody wants it any more."""
        self.begun: HostedRuntime | None = None
        self.ran: FullRun | None = None

    def begin(self, runtime: HostedRuntime) -> None:
        self.begun = runtime

    def end(self) -> None:
        """Never blocks: its thread closes what there is."""
        self.over.set()
        if self.begun is not None and (supervisor := self.begun.supervisor) is not None:
            supervisor.end(Death(reason="closed"))


class FullRuns:
    """Of one runtime, by numbers that its client gives them: each on a thread of its own. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[int, _Run] = {}

    def begin(
        self, work: RunInFull, number: int, client: str, key: str, listener: Listener, admission: Admission
    ) -> None:
        """The listener gets a RanInFull, or the error to raise. key: see `cancel`.

        Raises UnavailableError while another client has one.
        """
        run = _Run(client, key)
        with self._lock:
            self._runs = {at: each for at, each in self._runs.items() if not each.over.is_set()}
            if any(each.client != client for each in self._runs.values()):
                raise UnavailableError("another client runs this history in full; try again behind it")
            former, self._runs[number] = self._runs.get(number), run
        if former is not None:
            former.end()
        watch = FullRunWatch(begun=run.begin, cancelled=run.over.is_set, admission=admission)
        carried_out = partial(_carry_out, run, partial(work, watch), listener)
        try:
            begin_thread("cenote-full-run", carried_out)
        except UnavailableError:
            run.over.set()
            raise

    def of(self, client: str, number: int) -> HostedRuntime:
        """What this client looks at. Raises UnavailableError when there is no such run, or not any more."""
        with self._lock:
            run = self._runs.get(number)
        if run is None or run.client != client or run.ran is None or run.over.is_set():
            raise UnavailableError("there is no full run of that number, or not any more")
        return run.ran.runtime

    def end(self, client: str | None = None, number: int = 0) -> None:
        """Those of this client are over, or that of a number alone. None: any. Never blocks."""
        self._end(lambda at, run: client in (None, run.client) and number in (0, at))

    def cancel(self, key: str) -> None:
        """That which was begun with this key is over."""
        self._end(lambda _, run: run.key == key)

    def _end(self, wanted: Callable[[int, _Run], bool]) -> None:
        with self._lock:
            over = [number for number, run in self._runs.items() if wanted(number, run)]
            runs = [self._runs.pop(number) for number in over]
        for run in runs:
            run.end()


def _carry_out(run: _Run, work: Callable[[], AbstractContextManager[FullRun]], listener: Listener) -> None:
    try:
        with work() as run.ran:
            listener.done(RanInFull(steps=run.ran.steps))
            run.over.wait(KEPT_SECONDS)
            run.over.set()
    except Exception as error:  # noqa: BLE001  (whatever it is: whoever waits is told)
        run.over.set()
        listener.done(error)
