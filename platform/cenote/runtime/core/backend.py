"""Where a namespace lives: in a jail of this machine, or on a platform.

`Backend` is the part that both have. The other protocols are what a platform does in place of this process: it
forks next to the jail, stores states for as long as its clients say, and runs what changes a history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from cenote_security.options import option
from cenote_worker.checkpoints.retention import Retention
from cenote_worker.runtime.jail_requests import PYTHON, WorkdirRequest, WrittenForm

if TYPE_CHECKING:  # a client of jobs needs none of these, and they take a second
    from cenote.runtime.inject.host_function_server import HostFunctionServer
    from cenote.runtime.replay.harness_client import HarnessClient
    from cenote_security.policy import SandboxPolicy
    from cenote_worker.checkpoints.store import CheckpointInfo
    from cenote_worker.egress.ledger import Decision
    from cenote_worker.execution.programs import ProgramOrder
    from cenote_worker.execution.results import Carried, JailStatus, LiveOutput, OnError, SnapshotInfo
    from cenote_worker.history.history import History
    from cenote_worker.runtime.injection import Injection
    from cenote_worker.runtime.reruns import Reruns
    from cenote_worker.runtime.state.branches import ForkOrder, ForkPoint
    from cenote_worker.supervisor.program import ProgramHandle, ProgramListener
    from cenote_worker.supervisor.requests import Listener

Withdraw = Callable[[], None]
"""Says that the caller does not wait for a cell any more: it is dropped when it waits, interrupted when it runs."""


class Backend(Protocol):
    """One namespace. Calls that take a Listener only queue something and never block while `running`."""

    @property
    def place(self) -> str:
        """The platform that has the namespace, as references name it; empty for this process."""

    @property
    def policy(self) -> SandboxPolicy:
        """What holds there; until `start`, what was asked for."""

    def start(self) -> None:
        """Makes sure that there is a jail; may block.

        Raises JailLostError, once, when the jail died between two calls; UnavailableError and
        IsolationUnavailableError when no jail can be had; RuntimeClosedError, RuntimeExpiredError.
        """

    def check_open(self) -> None:
        """Raises RuntimeClosedError."""

    @property
    def running(self) -> bool:
        """Whether a jail is there, so that `start` would not block."""

    @property
    def isolation(self) -> str:
        """What holds the jail that runs now. Starts one if need be."""

    @property
    def limits(self) -> str:
        """`cgroup v1`, `cgroup v2` or `watchdog`. Starts a jail if need be."""

    @property
    def carried(self) -> Carried | None:
        """How the state came to the latest jail; None where none did, or where the namespace is elsewhere."""

    @property
    def network_log(self) -> tuple[Decision, ...]:
        """What the proxy decided last, oldest first; empty without a network."""

    def read_history(self) -> History:
        """What has happened until now. May block where the namespace is elsewhere. Raises UnavailableError."""

    def execute(
        self,
        code: str,
        timeout: float | None,
        listener: Listener,
        *,
        cause: str = "",
        on_error: OnError = "keep",
    ) -> Withdraw | None:
        """A cell. The listener gets an ExecutionResult in any case; None when nothing was queued.

        cause: what made its author send it, for the history.
        """

    def begin(self, order: ProgramOrder, listener: ProgramListener) -> ProgramHandle:
        """A program beside the namespace. Raises as `start`, and UsageError; the listener hears the rest."""

    def interrupt(self) -> bool:
        """Interrupts the running cell; an attached author's backend only its own. False when there is none."""

    def attach(self, author: str, *, private: bool) -> Backend:
        """The same runtime for one more author, whose steps carry the name. `close` of it detaches the author.

        private: names mean the author's own, which are there again when the author is attached again.
        """

    def resume(self) -> None:
        """A listener that could not keep up can take more output."""

    def status(self, answer: Callable[[JailStatus | Exception | None], None]) -> None:
        """`answer` is called, on any thread, with None if the jail ends before it can be asked."""

    def live_output(self, after: LiveOutput, answer: Callable[[LiveOutput | Exception], None]) -> None:
        """`answer` is called, on any thread, with what the running cell has printed since that look."""

    def outcome(self, key: str, listener: Listener) -> None:
        """What became of a call of this key. The listener may get OutcomeUnknownError, or it is raised at once."""

    def declare(self, injection: Injection) -> None:
        """What every jail begins with; before the first `start`. Takes the injection over."""

    def inject(self, injection: Injection, listener: Listener, *, replace: bool) -> None:
        """Once it succeeded the injection is taken over, and repeated in every later jail."""

    def fetch(self, name: str, listener: Listener, *, opaque: bool, written: WrittenForm = PYTHON) -> None:
        """A value: in the safe encoding, as a sealed pickle, or in another form."""

    def share(self, name: str, listener: Listener) -> None:
        """A copy of a value, put where any runtime can have it: a SharedReply."""

    def delete(self, name: str, listener: Listener) -> None:
        """Removes a variable."""

    def describe(self, listener: Listener) -> None:
        """All names and what may be said of their values."""

    def file(self, ask: WorkdirRequest, listener: Listener) -> None:
        """About the working directory. Disposes of what the request owns, whatever happens."""

    def snapshots(self, answer: Callable[[tuple[SnapshotInfo, ...] | Exception | None], None]) -> None:
        """`answer` is called, on any thread, with what is kept, by step; None as for `status`."""

    def snapshot(self, label: str, listener: Listener) -> None:
        """Keeps the state: a KeptReply, or UnavailableError with the reason."""

    def rollback(self, to: int | str, listener: Listener) -> None:
        """Goes back to the state after a step, or to that of a label: a Rollback."""

    def rerunning(self) -> Reruns | HarnessClient:
        """What changes of the history need, or the client of the platform that makes them. The namespace was started.

        Raises UsageError where it cannot be changed.
        """

    def reset(self) -> None:
        """Ends the jail; the next call starts a fresh one with what was injected."""

    def close(self) -> None:
        """Ends the jail, for good. Closing twice is fine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBranch:
    """A branch that is served. name: of the runtime. open: the way to it, for the client that has made it."""

    name: str
    point: ForkPoint
    open: Callable[[HostFunctionServer], Backend]


@runtime_checkable
class ForkingBackend(Protocol):
    """A Backend that forks."""

    def fork(self, order: ForkOrder, count: int, names: Sequence[str]) -> list[ServedBranch]:
        """So many branches, or none is left. Waits for no cell.

        names: of each, if they are to outlive this client.

        Raises UsageError for an author who is not the owner, UnavailableError, IncompleteForkError, NotKeptError and
        what a platform refuses with.
        """

    def fork_point(self) -> ForkPoint | None:
        """Where this runtime was forked from another, if it was."""


class CheckpointClient(Protocol):
    """What `cenote_worker.runtime.state.checkpoints.Checkpoints` is to a runtime's holder."""

    def make(self, label: str = "") -> CheckpointInfo:
        """Stores the state. Raises UsageError where nothing is ever stored, CheckpointError."""

    def hibernate(self, *, partial: bool) -> CheckpointInfo:
        """Stores the state and ends the jail. Raises IncompleteRestoreError too; then the jail goes on."""

    def go_back(self, checkpoint: int | str) -> CheckpointInfo:
        """Goes on from an earlier one. Raises UnknownEntryError too, UnavailableError while a call is under way."""


@runtime_checkable
class StoringBackend(Protocol):
    """A Backend whose states are stored by its host."""

    @property
    def checkpoints(self) -> CheckpointClient: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionOptions(Retention):
    """With what a client that joins it puts up with. See CreateRuntimeRequest."""

    partial: bool = option(False, help="join it without what cannot be given back of it")


Kept = RetentionOptions
"""Its name in pickles of version 0.1.0."""


NO_RETENTION: Final = RetentionOptions()
