"""One author's view of a runtime that several authors share. The runtime outlives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cenote_security.errors import RuntimeClosedError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.ledger import Decision
from cenote_worker.execution.programs import ProgramOrder
from cenote_worker.execution.results import Carried, JailStatus, LiveOutput, OnError, SnapshotInfo
from cenote_worker.history.history import History
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.jail_requests import PYTHON, WorkdirRequest, WrittenForm
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.recorder import UsageEntry
from cenote_worker.runtime.reruns import Reruns
from cenote_worker.supervisor.program import ProgramHandle, ProgramListener
from cenote_worker.supervisor.requests import AuthorSession, Listener, Withdraw

if TYPE_CHECKING:
    from cenote_worker.runtime.runtime import HostedRuntime


class AttachedRuntime:
    """The calls of a HostedRuntime, made in the name of one author."""

    def __init__(self, runtime: HostedRuntime, seat: AuthorSession) -> None:
        self._runtime = runtime
        self._seat = seat
        self._closed = False

    @property
    def place(self) -> str:
        return self._runtime.place

    @property
    def policy(self) -> SandboxPolicy:
        return self._runtime.policy

    # -- life --

    def start(self) -> None:
        """As HostedRuntime.start. Raises JailLostError when the jail that this author has used has ended."""
        self.check_open()
        self._runtime.start(self._seat)

    def check_open(self) -> None:
        """Raises RuntimeClosedError when this author was detached, or the runtime closed."""
        if self._closed:
            raise RuntimeClosedError(f"{self._seat.author} was detached from this runtime; attach again")
        self._runtime.check_open()

    @property
    def running(self) -> bool:
        return self._runtime.running

    @property
    def isolation(self) -> str:
        return self._runtime.started(self._seat).isolation

    @property
    def limits(self) -> str:
        return self._runtime.started(self._seat).limits

    @property
    def carried(self) -> Carried | None:
        return self._runtime.carried

    @property
    def network_log(self) -> tuple[Decision, ...]:
        return self._runtime.network_log

    def read_history(self) -> History:
        return self._runtime.history

    def attach(self, author: str, *, private: bool) -> AttachedRuntime:
        return self._runtime.attach(author, private=private)

    def reset(self) -> None:
        """Raises UsageError: other clients use this runtime too."""
        raise UsageError("only the owner of a runtime can reset it, not an author who is attached")

    def close(self) -> None:
        """Detaches. Waiting requests are declined, a running one is interrupted; the runtime and the names stay."""
        self._closed = True
        self._runtime.vacate(self._seat)

    # -- cells --

    def execute(
        self,
        code: str,
        timeout: float | None,
        listener: Listener,
        key: RequestKey | None = None,
        cause: str = "",
        entry: UsageEntry | None = None,
        on_error: OnError = "keep",
    ) -> Withdraw | None:
        self.check_open()
        withdraw = self._runtime.execute(
            code, timeout, listener, key, self._seat, cause, entry, on_error=on_error
        )
        if self._closed:  # by another thread, just now
            self._runtime.vacate(self._seat)
        return withdraw

    def join(self, key: RequestKey, listener: Listener) -> Withdraw:
        """As HostedRuntime.join."""
        self.check_open()
        return self._runtime.join(key, listener)

    def outcome(self, key: str, listener: Listener) -> None:
        self.check_open()
        self._runtime.outcome(key, listener)

    def leave(self, key: str, listener: Listener) -> None:
        self._runtime.leave(key, listener)

    def begin(
        self, order: ProgramOrder, listener: ProgramListener, entry: UsageEntry | None = None
    ) -> ProgramHandle:
        """As HostedRuntime.begin."""
        self.check_open()
        return self._runtime.begin(order, listener, self._seat, entry)

    def interrupt(self) -> bool:
        """Interrupts the running cell if it is this author's. False when it is not, or none runs."""
        return self._runtime.interrupt(self._seat)

    def resume(self) -> None:
        self._runtime.resume()

    def status(self, answer: Callable[[JailStatus | None], None]) -> None:
        self.check_open()
        self._runtime.status(answer, self._seat)

    def live_output(self, after: LiveOutput, answer: Callable[[LiveOutput], None]) -> None:
        self.check_open()
        self._runtime.live_output(after, answer)

    # -- snapshots --

    def snapshots(self, answer: Callable[[tuple[SnapshotInfo, ...] | None], None]) -> None:
        self.check_open()
        self._runtime.snapshots(answer, self._seat)

    def snapshot(self, label: str, listener: Listener, key: RequestKey | None = None) -> None:
        self.check_open()
        self._runtime.snapshot(label, listener, key, self._seat)

    def rollback(self, to: int | str, listener: Listener, key: RequestKey | None = None) -> None:  # noqa: ARG002
        """Raises UsageError: other clients use this runtime too."""
        raise UsageError("only the owner of a runtime can roll it back, not an author who is attached")

    def rerunning(self) -> Reruns:
        """Raises UsageError: other clients use the runtime too."""
        raise UsageError("only the owner of a runtime can patch its history, not an author who is attached")

    # -- values --

    def declare(self, injection: Injection) -> None:
        self._runtime.declare(self._mine(injection))

    def inject(
        self, injection: Injection, listener: Listener, *, replace: bool, key: RequestKey | None = None
    ) -> None:
        self.check_open()
        self._runtime.inject(self._mine(injection), listener, replace=replace, key=key)

    def _mine(self, injection: Injection) -> Injection:
        injection.seat = self._seat
        return injection

    def fetch(self, name: str, listener: Listener, *, opaque: bool, written: WrittenForm = PYTHON) -> None:
        self.check_open()
        self._runtime.fetch(name, listener, opaque=opaque, written=written, seat=self._seat)

    def share(self, name: str, listener: Listener) -> None:
        self.check_open()
        self._runtime.share(name, listener, self._seat)

    def delete(self, name: str, listener: Listener, key: RequestKey | None = None) -> None:
        self.check_open()
        self._runtime.delete(name, listener, key, self._seat)

    def describe(self, listener: Listener) -> None:
        self.check_open()
        self._runtime.describe(listener, self._seat)

    def file(self, ask: WorkdirRequest, listener: Listener, key: RequestKey | None = None) -> None:
        self.check_open()
        self._runtime.file(ask, listener, key, self._seat)
