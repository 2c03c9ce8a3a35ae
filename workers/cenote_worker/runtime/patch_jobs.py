"""Patches and builds next to a runtime's jail, for remote clients: each is done once, all or nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from cenote_proto.v1 import jail_pb2, journal_pb2, runtime_pb2
from cenote_security.errors import RolledBackError, UnavailableError
from cenote_worker.execution.results import Built, Patched, PatchedStep, StreamName
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.process.threads import begin_thread
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.recorder import Admission, UsageEntry
from cenote_worker.runtime.replay import HostCallReplay
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import JailRequest, Listener, Outcome, Withdraw

if TYPE_CHECKING:
    from cenote_worker.runtime.handover.handover_log import HandoverLog
    from cenote_worker.runtime.runtime import HostedRuntime
    from cenote_worker.runtime.scratch_runtime import FullRun, FullRunWatch

_log = logging.getLogger("cenote.hosted")

_TIMEOUT: Final = 60.0
"""Seconds that a rollback may take: a thousand times what a gigabyte takes."""

_TRIES: Final = 3
"""A rollback is not carried out when the worker has just died, and is requested again then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchRequest:
    """A patch of the line that ends with `head`. cause: for the record. The rest: as ApplyOptions."""

    head: int
    steps: tuple[PatchedStep, ...]
    cause: str = ""
    atomic: bool = True
    stop_on_failure: bool = True
    aside: bool = False
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A request to bring all artifacts up to date. As BuildOptions."""

    atomic: bool = True
    stop_on_failure: bool = True
    aside: bool = False
    timeout: float | None = None
    keep_failing: bool = False
    test_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchWatch:
    """progress: called before each step. cancelled: called before each step."""

    progress: Callable[[runtime_pb2.ApplyProgress], None]
    cancelled: Callable[[], bool]


Work = Callable[[PatchWatch], Patched | Built]
"""Blocks until it is done; everything is as before unless it was applied. Raises what the runtime raises."""


class Patcher(Protocol):
    """Knows how to make one line from another. The server of runtimes gets it when it is started."""

    def patch(self, runtime: HostedRuntime, request: PatchRequest, watch: PatchWatch) -> Patched:
        """See Work."""

    def build(self, runtime: HostedRuntime, request: BuildRequest, watch: PatchWatch) -> Built:
        """See Work."""

    def run_in_full(
        self, runtime: HostedRuntime, head: int, watch: FullRunWatch
    ) -> AbstractContextManager[FullRun]:
        """Runs the line to this step: see RunInFull."""

    def declare(self, runtime: HostedRuntime, units: Sequence[ArtifactDeclared]) -> None:
        """Notes the new ones among these in the history. Raises UsageError for inconsistent ones."""


class _Job:
    def __init__(self, key: str, interrupt: Callable[[], object]) -> None:
        self.key = key
        self.over = threading.Event()
        """Set when no client wants it any more."""
        self._stopped = False
        self._interrupt = interrupt

    def withdraw(self, *, waiting: bool = True) -> None:
        """See Withdraw. waiting: False stops the running step, with which the patch fails."""
        if waiting:
            self.over.set()
            self._stopped = True
        self._interrupt()

    @contextmanager
    def admitted(self, admission: Admission, code: str) -> Iterator[UsageEntry | None]:
        """See Admission. No step begins once the patch was withdrawn, whichever of the two came first."""
        if self._stopped:
            raise UnavailableError("the patch was withdrawn")
        with admission(code) as entry:
            yield entry
        if self._stopped:
            self._interrupt()


class PatchJobs:
    """Of one runtime: one job at a time, each on a thread of its own. Safe to use from several threads.

    legacy: records each for a successor before anything is done.
    """

    def __init__(self, runtime: HostedRuntime, legacy: HandoverLog) -> None:
        self._runtime = runtime
        self._legacy = legacy
        self._lock = threading.Lock()
        self._job: _Job | None = None
        self.settled = threading.Event()
        """Set once a patch that another process left unfinished is undone: the head is that of the state again."""
        self.settled.set()

    def apply(
        self,
        work: Work,
        listener: Listener,
        key: RequestKey,
        progress: Callable[[runtime_pb2.ApplyProgress], None],
        admission: Admission,
    ) -> Withdraw | None:
        """The listener gets the result of the work, or the error to raise. admission: of cells that are run again.

        A known key joins its job, as for a cell. Raises UnavailableError while another is applied.
        """
        return self._runtime.calls.once(
            key, listener, lambda heard: self._begin(work, heard, key.text, progress, admission)
        )

    def close(self) -> None:
        """Cancels the running job, since no client wants it any more: its plan alone may take long."""
        with self._lock:
            if self._job is not None:
                self._job.over.set()

    @property
    def busy(self) -> bool:
        """Whether one is being applied."""
        return self._job is not None

    def cancel(self, key: str, *, now: bool) -> None:
        """Ends the patch of this key after the running step. now: that step is interrupted."""
        with self._lock:
            job = self._job if self._job is not None and self._job.key == key else None
        if job is not None:
            job.over.set()
            if now:
                job.withdraw()

    def _begin(
        self,
        work: Work,
        listener: Listener,
        key: str,
        progress: Callable[[runtime_pb2.ApplyProgress], None],
        admission: Admission,
    ) -> Withdraw:
        self._runtime.rerunning()
        job = self._taken(_Job(key, self._runtime.interrupt))
        watch = PatchWatch(progress=progress, cancelled=job.over.is_set)
        carried_out = partial(self._carry_out, job, partial(work, watch), listener, admission)
        try:
            begin_thread("cenote-patch", carried_out)
        except UnavailableError:
            self._end_job()
            raise
        return job.withdraw

    def _taken(self, job: _Job) -> _Job:
        """Takes the place of the only job. Raises UnavailableError while there is another."""
        with self._lock:
            if self._job is not None:
                raise UnavailableError(
                    "another patch or build of this runtime is under way; try again behind it"
                )
            self._job = job
        return job

    @contextmanager
    def away(self, key: str) -> Iterator[None]:
        """Inside, the live state is not the head's: a successor of this process would restore it.

        Raises UnavailableError while a patch is applied; none begins meanwhile.
        """
        self._taken(_Job(key, lambda: None))
        try:
            self._note_begun(key)
            yield
        finally:
            # A successor need not know of it.
            self._legacy.settled(key, UnavailableError("it was a visit"))
            self._end_job()

    def _end_job(self) -> None:
        with self._lock:
            self._job = None

    def _note_begun(self, key: str) -> None:
        self.settled.wait(_TIMEOUT * _TRIES)
        self._legacy.patch_begun(key, self._runtime.history.tree.head, self._runtime.step)

    def _carry_out(
        self, job: _Job, work: Callable[[], Patched | Built], listener: Listener, admission: Admission
    ) -> None:
        runtime = self._runtime
        outcome: Outcome
        try:
            self._note_begun(job.key)
            with runtime.rerunning().admitted(partial(job.admitted, admission)):
                outcome = work()
        except Exception as error:  # noqa: BLE001  (the listener gets any error)
            outcome = error
        self._end_job()
        listener.done(outcome)


class UnfinishedPatch:
    """Undoes a patch that another process has begun. Call `hold` before the jail is taken over."""

    def __init__(self, runtime: HostedRuntime, begun: journal_pb2.PatchBegun, steps: int) -> None:
        """steps: how many had a number when that process ended."""
        self._runtime = runtime
        self._head = begun.head
        self._intact = begun.intact
        self._between = range(begun.steps + 1, steps + 1)
        self._tries = _TRIES

    def hold(self) -> None:
        """Keeps the running step from changing anything outside, and other patches from beginning before the undo."""
        self._runtime.patches.settled.clear()
        self._runtime.replays.begin(HostCallReplay((), tentative=True), self._runtime.interrupt)
        self._runtime.rerunning().between_all(self._between)

    def undo(self) -> None:
        """Call this before any other request."""
        if self._intact:
            if self._head in self._runtime.history.tree:
                self._runtime.history.moved(self._head, "a patch was not applied")
            self._end()
            return
        if not self._runtime.running:  # its jail has ended, and the state with it
            self._end()
            return
        self._runtime.interrupt()
        self._go_back()

    def output(self, _stream: StreamName, _text: str) -> bool:
        return True

    def done(self, outcome: Outcome) -> None:
        self._tries -= 1
        if isinstance(outcome, UnavailableError | RolledBackError) and self._tries:
            self._go_back()
            return
        if isinstance(outcome, Exception):
            about = {"runtime": self._runtime.name, "step": self._head}
            _log.error("what a patch has left in the middle could not be undone: %s", outcome, extra=about)
        self._end()

    def _end(self) -> None:
        self._runtime.replays.end()
        self._runtime.patches.settled.set()

    def _go_back(self) -> None:
        listener = self._runtime.recorder.rollback(self)
        request = JailRequest(
            RequestKind.ROLLBACK, jail_pb2.Request(), listener, timeout=_TIMEOUT, step=self._head
        )
        self._runtime.submissions.submit(request)
