"""The port that runs the loops of teams and jobs; and its implementation without Ray, with a process for each."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeVar

from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.work.process_unsafe import OrchestratorProcess, spawn
from cenote.gateway.work.settings import OrchestratorSettings
from cenote.gateway.work.worker_slots import WorkerSlots
from cenote.gateway.work.workload import LOOK_EVERY, MAX_FAILURES, SWEEP_EVERY, Workload, pause_after
from cenote_security.errors import CenoteError
from cenote_security.ids import TenantId
from cenote_worker.node.state_log import StateLog

log = logging.getLogger("cenote.orchestrators")


class Orchestrators(Protocol):
    """Runs the works of one kind. Calls are thread-safe."""

    def begin(self, address: str, authority: str) -> None:
        """The gateway listens at `address`. Resumes what former gateways have left."""

    def ensure(self, work: str) -> None:
        """Makes sure that a process works on it if there is something to do. Does not block."""

    def settle(self, work: str, patience: float) -> None:
        """Waits until no process works any more on work that is done."""

    def close(self, *, orderly: bool = True) -> None:
        """Ends all processes. Closing twice is fine.

        orderly: false after an error, such as for a port that is taken: a former gateway's processes may still run.
        """


class WaitingProcess(Protocol):
    """A process that has imported what it will need, and waits for work."""

    def give(self, settings: str) -> None:
        """Raises OSError where it is known that it has died."""

    def wait(self, patience: float) -> bool:
        """Returns whether it has died, after at most `patience` seconds."""

    def end(self) -> None: ...


P = TypeVar("P", bound=WaitingProcess)


class Spare(Generic[P]):
    """A process that is made ahead of its work: starting one takes seconds, most of them for imports. It takes one
    work and ends with it, so nothing of one tenant's work meets another's. Not thread-safe.
    """

    def __init__(self, make: Callable[[], P]) -> None:
        self._make = make
        self._process: P | None = None
        self._losses = 0
        self._not_before = 0.0

    def take(self, settings: str) -> P | None:
        """Gives the work to the process. None where there is none."""
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            process.give(settings)
        except OSError:  # it has died
            process.wait(0.0)
            return None
        self._losses = 0
        return process

    def keep(self) -> None:
        """Makes a process if there is none; after one that died, only after a pause. Raises what `make` raises."""
        if self._process is not None and self._process.wait(0.0):
            self._process = None
            self._losses += 1
            self._not_before = time.monotonic() + pause_after(self._losses)
        if self._process is None and time.monotonic() >= self._not_before:
            self._process = self._make()

    def drop(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()


class ProcessOrchestrators:
    """A process per work that has something to do, restarted when it was killed.

    environment: names of variables for these processes, besides those that programs need to run.
    """

    def __init__(
        self,
        settings: OrchestratorSettings,
        works: Workload,
        environment: Collection[str] = (),
    ) -> None:
        """settings: those of all works."""
        self._settings = settings
        self._works = works
        self._places = WorkerSlots(works.share)
        self._granted: dict[str, threading.Event] = {}
        """Works that wait for a slot."""
        self._environment = frozenset(environment)
        self._where = ("", "")
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._processes: dict[str, OrchestratorProcess] = {}
        self._closing = threading.Event()
        self._spare = Spare(lambda: self._spawned(settings))
        self._looks = StateLog(log, f"the process for the next {works.kind} could not be made")
        self._woken = threading.Event()
        """Set to have the spare looked after at once."""
        self._keeper = threading.Thread(
            target=self._keep_spare, name=f"cenote-{works.kind}s-spare", daemon=True
        )

    def begin(self, address: str, authority: str) -> None:
        self._where = address, authority
        self._keeper.start()
        for work in self._works.at_work():
            self.ensure(work)

    def ensure(self, work: str) -> None:
        with self._lock:
            if work not in self._threads and not self._closing.is_set():
                thread = threading.Thread(
                    target=self._look_after, args=(work,), name=f"cenote-{work}", daemon=True
                )
                thread.start()
                self._threads[work] = thread

    def settle(self, work: str, patience: float) -> None:
        with self._lock:
            thread = self._threads.get(work)
        if thread is not None:
            thread.join(patience)

    def process(self, work: str) -> int:
        """The id of the process that works on it; 0 for none."""
        with self._lock:
            process = self._processes.get(work)
        return 0 if process is None else process.pid

    def close(self, *, orderly: bool = True) -> None:  # noqa: ARG002  (its processes end with this one anyway)
        with self._lock:
            self._closing.set()
            self._woken.set()
            self._spare.drop()
            processes, threads = list(self._processes.values()), list(self._threads.values())
        if self._keeper.is_alive():
            threads.append(self._keeper)
        for process in processes:
            process.kill()
        for thread in threads:
            thread.join()

    def _look_after(self, work: str) -> None:
        try:
            while not self._closing.is_set() and not self._to_its_end(work):
                self._closing.wait(LOOK_EVERY)
        except Exception as error:  # the next `ensure` tries again
            log.error("%s cannot be worked on: %s", work, error, exc_info=not isinstance(error, CenoteError))
            with self._lock:
                self._threads.pop(work, None)

    def _to_its_end(self, work: str) -> bool:
        """Returns False where the database was unavailable, or the machine had no room for a process: then the caller
        must try again.
        """
        try:
            tenant = self._works.tenant(work)
            while self._has_work(work):
                with self._place(work, tenant):
                    self._work(work)
        except (DatabaseUnavailableError, OSError) as error:
            log.error("%s waits: %s", work, error)
            return False
        return True

    @contextmanager
    def _place(self, work: str, tenant: TenantId) -> Iterator[None]:
        with self._lock:
            granted = self._granted[work] = threading.Event()
            self._tell(self._places.ask(work, tenant))
        granted.wait()
        try:
            yield
        finally:
            with self._lock:
                self._tell(self._places.leave(work))

    def _tell(self, works: Iterable[str]) -> None:
        for work in works:
            self._granted.pop(work).set()

    def _has_work(self, work: str) -> bool:
        """Returns False if it has none; then the next `ensure` starts a new thread."""
        with self._lock:
            if not self._closing.is_set() and self._works.is_open(work):
                return True
            self._threads.pop(work, None)
            return False

    def _work(self, work: str) -> None:
        """Runs processes until there is nothing to do, they make no progress, or another work needs the slot."""
        failures, before = 0, self._works.progress(work)
        while self._works.is_open(work) and not self._closing.wait(pause_after(failures)):
            if self._run_process(work) or (failures and self._overstays(work)):
                return
            now = self._works.progress(work)
            failures, before = (failures + 1 if now == before else 0), now
            if failures == MAX_FAILURES:
                reason = (
                    f"{MAX_FAILURES} processes ended without getting any further; the platform's log says why"
                )
                self._works.stuck(work, reason)
                if (
                    after := self._works.progress(work)
                ) != now:  # a run has ended; the next one has its own tries
                    failures, before = 0, after

    def _spawned(self, settings: OrchestratorSettings) -> OrchestratorProcess:
        return spawn(settings.to_json(), settings.state.log, self._environment)

    def _keep_spare(self) -> None:
        while not self._closing.is_set():
            try:
                self._look_after_spare()
            except (CenoteError, OSError) as error:
                self._looks.failed(error, expected=True)
            else:
                self._looks.worked()
            self._woken.wait(SWEEP_EVERY)
            self._woken.clear()

    def _look_after_spare(self) -> None:
        """It counts as one of the processes for which there is room."""
        wanted = self._works.expects_more()
        with self._lock:
            if wanted and self._places.has_room and not self._closing.is_set():
                self._spare.keep()
            else:
                self._spare.drop()

    def _overstays(self, work: str) -> bool:
        with self._lock:
            return self._works.can_make_room and self._places.overstaying == work

    def _run_process(self, work: str) -> bool:
        """Runs a process to its end. Returns whether it was asked to make room."""
        settings = self._settings.of(work, self._where)
        with self._lock:
            if self._closing.is_set():
                return False
            process = self._spare.take(settings.to_json()) or self._spawned(settings)
            self._processes[work] = process
        self._woken.set()  # the next spare begins now: the next work may come soon
        told = False
        while not process.wait(LOOK_EVERY):
            if not told and self._overstays(work):
                process.make_room()
                told = True
        with self._lock, suppress(KeyError):
            del self._processes[work]
        return told
