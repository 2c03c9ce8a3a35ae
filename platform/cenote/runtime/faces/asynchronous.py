"""AsyncPythonRuntime: the face for code that awaits. The same methods as PythonRuntime, as coroutines."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, overload

from cenote.harness.applying.apply import ApplyResult
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.live_state import AsyncRuntimeState
from cenote.runtime.core.arguments import KeptState, Scope
from cenote.runtime.core.auditing import auditor_of
from cenote.runtime.core.backends import Storage, StoreURL, backend_at
from cenote.runtime.core.derived import AttachedCore, Several, fork, stored_runtime
from cenote.runtime.core.listeners import AsyncListener, OnOutput
from cenote.runtime.core.merging import Merge, OnConflict, branch_core, merge
from cenote.runtime.core.processes import (
    Command,
    Folder,
    Input,
    ProcessFeed,
    ProcessResult,
    Terminal,
    most_output,
    order,
)
from cenote.runtime.core.replies import (
    done,
    live_output,
    past,
    reference,
    result,
    rollback,
    snapshot,
    snapshots,
    status,
    value,
    variables,
)
from cenote.runtime.core.runtime_core import RuntimeCore
from cenote.runtime.faces.face import RuntimeFace
from cenote.runtime.faces.files import AsyncFiles
from cenote.runtime.faces.process import AsyncProcess, run_async
from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable, check_name
from cenote.runtime.inject.injection import value_parcel
from cenote.runtime.inject.references import ObjectReference
from cenote_security.errors import UnknownNameError
from cenote_security.policy import SandboxPolicy
from cenote_security.rules import SecurityChecker
from cenote_worker.checkpoints.store import CheckpointInfo
from cenote_worker.execution.programs import ProgramOrder
from cenote_worker.execution.results import (
    ExecutionResult,
    JailStatus,
    LiveOutput,
    OnError,
    Rollback,
    SnapshotInfo,
    VariableInfo,
)
from cenote_worker.jail.errors.nearest import nearest
from cenote_worker.supervisor.program import ProgramHandle, ProgramListener
from cenote_worker.supervisor.requests import Listener, Outcome


class AsyncPythonRuntime(RuntimeFace):
    """A persistent Python namespace in a jail of its own; see PythonRuntime for arguments and errors.

    Async host functions run on the event loop that awaits the cell. Cancelling `execute` interrupts its cell.
    """

    def __init__(
        self,
        *,
        functions: Sequence[Function] = (),
        variables: Sequence[Variable] = (),
        types: Sequence[Type] = (),
        security_checker: SecurityChecker | None = None,
        sandbox: SandboxPolicy | None = None,
        address: str | None = None,
        token: str | None = None,
        name: str | None = None,
        history: str | Path | None = None,
        store: StoreURL | None = None,
        durable: bool = False,
        audit_patches: float = 0.0,
    ) -> None:
        policy = SandboxPolicy() if sandbox is None else sandbox
        auditor = auditor_of(audit_patches)
        place, kept = backend_at(address, token, history, name, store, durable=durable)
        self.core = RuntimeCore(
            functions, variables, types, security_checker, policy, name, place, kept, auditor
        )
        weakref.finalize(self, self.core.close)

    @classmethod
    async def restore(
        cls,
        store: StoreURL,
        name: str,
        checkpoint: int | str | None = None,
        *,
        partial: bool = False,
        durable: bool = False,
        functions: Sequence[Function] = (),
        variables: Sequence[Variable] = (),
        types: Sequence[Type] = (),
        security_checker: SecurityChecker | None = None,
        sandbox: SandboxPolicy | None = None,
        history: str | Path | None = None,
        audit_patches: float = 0.0,
    ) -> Self:
        """A runtime that begins with a checkpoint of the runtime `name`; see PythonRuntime.restore."""
        kept = Storage(url=store, durable=durable, begin="stored", checkpoint=checkpoint, partial=partial)
        given = functions, variables, types, security_checker, sandbox, history, audit_patches
        return cls.holding(await asyncio.to_thread(stored_runtime, kept, name, *given))

    @classmethod
    async def open(
        cls,
        store: StoreURL,
        name: str,
        *,
        durable: bool = True,
        partial: bool = False,
        functions: Sequence[Function] = (),
        variables: Sequence[Variable] = (),
        types: Sequence[Type] = (),
        security_checker: SecurityChecker | None = None,
        sandbox: SandboxPolicy | None = None,
        history: str | Path | None = None,
        audit_patches: float = 0.0,
    ) -> Self:
        """The runtime of that name, restored if the store has it and made if not; see PythonRuntime.open."""
        kept = Storage(url=store, durable=durable, begin="either", partial=partial)
        given = functions, variables, types, security_checker, sandbox, history, audit_patches
        return cls.holding(await asyncio.to_thread(stored_runtime, kept, name, *given))

    # -- cells --

    async def execute(
        self,
        code: str,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
        *,
        cause: str = "",
        on_error: OnError = "keep",
    ) -> ExecutionResult:
        """Runs one cell. Never raises for what the code does. `on_output` is called in this event loop.

        on_error: as for PythonRuntime.
        """
        self.core.refuse_reentry()
        self.core.serve_hosts_on(asyncio.get_running_loop())
        listener = AsyncListener(self.core.resume, on_output)
        if self.core.running:
            withdraw = self.core.execute(code, timeout, listener, cause, on_error)
        else:
            withdraw = await self._queued_on_a_thread(code, timeout, listener, cause, on_error)
        try:
            return result(await listener.future)
        except BaseException:
            if withdraw is not None:
                withdraw()
            raise

    async def _queued_on_a_thread(
        self, code: str, timeout: float | None, listener: Listener, cause: str, on_error: OnError
    ) -> Callable[[], None] | None:
        """Queues a cell where a jail must be started first; the cell is withdrawn if its caller leaves meanwhile."""
        execute = partial(self.core.execute, code, timeout, listener, cause, on_error)
        queuing = asyncio.ensure_future(asyncio.to_thread(execute))
        try:
            return await asyncio.shield(queuing)
        except asyncio.CancelledError:
            # The thread cannot be stopped, and what it queues would run with no caller waiting.
            queuing.add_done_callback(_withdraw)
            raise

    async def interrupt(self) -> bool:
        """Interrupts the running cell. False when none runs."""
        return self.core.interrupt()

    async def outcome(self, key: str) -> ExecutionResult | ApplyResult | BuildResult | None:
        """What became of a call whose answer was lost, by the key that OutcomeUnknownError named."""
        outcome = await self._call(lambda listener: self.core.outcome(key, listener))
        return await asyncio.to_thread(past, outcome, self.core.read_history)

    # -- processes --

    async def run(
        self,
        command: Command,
        *,
        stdin: Input = None,
        env: Mapping[str, str] | None = None,
        cwd: Folder = None,
        timeout: float | None = None,
        max_output: int | None = None,
    ) -> ProcessResult:
        """Runs a program beside the namespace and waits for its end; see PythonRuntime.run."""
        policy = self.core.policy
        limit = policy.cell_timeout if timeout is None else timeout
        asked = order(command, env=env, cwd=cwd, timeout=limit, has_input=stdin is not None)
        return await run_async(self._begin, asked, stdin, most_output(max_output, policy))

    async def spawn(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Folder = None,
        timeout: float | None = None,
        pty: Terminal = False,
    ) -> AsyncProcess:
        """Begins a program beside the namespace; see PythonRuntime.spawn."""
        asked = order(command, env=env, cwd=cwd, timeout=timeout, has_input=True, pty=pty)
        feed = ProcessFeed()
        return AsyncProcess(await self._begin(asked, feed), feed, self.core.policy.output_bytes)

    async def _begin(self, asked: ProgramOrder, listener: ProgramListener) -> ProgramHandle:
        """A process that comes to be when its caller has gone is ended."""
        if self.core.running:
            return self.core.begin(asked, listener)
        beginning = asyncio.ensure_future(asyncio.to_thread(self.core.begin, asked, listener))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(_end)
            raise

    # -- snapshots --

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """The states that are kept in memory, by step: `rollback` can go back to each."""
        await self._start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[SnapshotInfo, ...] | Exception | None] = loop.create_future()

        def answered(answer: tuple[SnapshotInfo, ...] | Exception | None) -> None:
            loop.call_soon_threadsafe(future.set_result, answer)

        self.core.snapshots(answered)
        return snapshots(await future)

    async def snapshot(self, label: str | None = None) -> SnapshotInfo:
        """Keeps the state as it is now; with a label it is kept longer than others, and found by it."""
        return snapshot(await self._call(partial(self.core.snapshot, label)), label)

    async def rollback(self, to: KeptState) -> Rollback:
        """Goes back to the state after step `to`, 0 for the beginning, of a label or a snapshot."""
        return rollback(await self._call(partial(self.core.rollback, to)))

    # -- branches --

    @overload
    async def fork(
        self,
        step: KeptState | None = None,
        count: Literal[1] = 1,
        *,
        deterministic: bool = False,
        partial: bool = False,
        name: str | None = None,
    ) -> Self: ...

    @overload
    async def fork(
        self,
        step: KeptState | None = None,
        *,
        count: Several,
        deterministic: bool = False,
        partial: bool = False,
        name: str | None = None,
    ) -> list[Self]: ...

    @overload
    async def fork(
        self,
        step: KeptState | None = None,
        count: int = 1,
        *,
        deterministic: bool = False,
        partial: bool = False,
        name: str | None = None,
    ) -> Self | list[Self]: ...

    async def fork(
        self,
        step: KeptState | None = None,
        count: int = 1,
        *,
        deterministic: bool = False,
        partial: bool = False,
        name: str | None = None,
    ) -> Self | list[Self]:
        """Runtimes that begin with this one's state; see PythonRuntime.fork."""
        cores = await asyncio.to_thread(
            fork, self.core, step, count, deterministic=deterministic, partial=partial, name=name
        )
        made = [type(self).holding(core) for core in cores]
        return made[0] if count == 1 else made

    async def merge(
        self, branch: Self, names: Iterable[str] | None = None, on_conflict: OnConflict = "refuse"
    ) -> Merge:
        """Takes over variables of a branch; see PythonRuntime.merge."""
        return await asyncio.to_thread(merge, self.core, branch_core(branch), names, on_conflict)

    # -- values --

    async def inject(self, *items: Injectable) -> None:
        """Adds variables, functions and types; given together they share what they share."""
        if self.core.has_injected(items):
            self.core.refuse_existing(items, await self.describe())
        with self.core.injecting(items) as parcels:
            for parcel in parcels:
                done(await self._call(partial(self.core.inject, parcel, replace=False)), parcel.names)

    async def update_variable(self, name: str, value: Any) -> None:
        """Replaces a variable by a value or by what an ObjectReference stands for."""
        check_name(name, "variable")
        if name not in self.core.items:
            await self._check_known(name)
        parcel = value_parcel(name, value, self.core.backend.place)
        done(await self._call(lambda listener: self.core.inject(parcel, listener, replace=True)), name)

    async def delete(self, name: str) -> None:
        """Removes a variable."""
        done(await self._call(lambda listener: self.core.delete(name, listener)), name)
        self.core.forget([name])

    async def retrieve(self, name: str, classes: Iterable[type] = (), *, trusted: bool = False) -> Any:
        """A copy of a variable, rebuilt safely: nothing that a jail sends is unpickled."""
        outcome = await self._call(lambda listener: self.core.fetch(name, listener, opaque=trusted))
        return value(outcome, name, self.core.classes, classes, trusted=trusted)

    async def share(self, name: str) -> ObjectReference:
        """A handle to a copy of a variable, to inject into other runtimes without a further copy."""
        return reference(await self._call(lambda listener: self.core.share(name, listener)), name)

    async def describe(self) -> list[VariableInfo]:
        """What the namespace holds: names, types, shapes, sizes; never values."""
        return variables(await self._call(self.core.describe))

    @property
    def files(self) -> AsyncFiles:
        """The working directory of the jail."""
        return AsyncFiles(self.core, self._call, self._begin)

    # -- checkpoints --

    async def checkpoint(self, label: str = "") -> CheckpointInfo:
        """Stores namespace, working directory and process state, durably, and waits until that is done.

        Only what changed since the checkpoint before is written. Another author's next cell need not wait.
        Raises UsageError for a runtime without a store, CheckpointError; the runtime goes on in any case.
        """
        return await asyncio.to_thread(self.core.checkpoints.make, label)

    async def hibernate(self, *, partial: bool = False) -> CheckpointInfo:
        """Stores the state and ends the jail; the next call goes on with it in another one.

        Raises IncompleteRestoreError when something could not be given back, unless `partial`; the jail goes on then.
        """
        return await asyncio.to_thread(self.core.checkpoints.hibernate, partial=partial)

    # -- several authors --

    async def attach(self, author: str, *, scope: Scope = "shared") -> Self:
        """This runtime for one more author: the same calls, with every step attributed to `author`."""
        attached = self.over(AttachedCore(self.core, author, scope, self))
        weakref.finalize(attached, attached.core.close)
        return attached

    # -- life --

    async def status(self) -> JailStatus:
        """Memory, processes and the running step, answered even while a cell holds the interpreter lock."""
        await self._start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[JailStatus | Exception | None] = loop.create_future()

        def answered(answer: JailStatus | Exception | None) -> None:
            loop.call_soon_threadsafe(future.set_result, answer)

        self.core.status(answered)
        return status(await future)

    async def live_output(self, after: LiveOutput | None = None) -> LiveOutput:
        """What the running cell has printed since an earlier look, of any client or author; see LiveOutput.

        The cell does not wait for those who look on: its latest 65,536 characters or so are stored.
        """
        await self._start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[LiveOutput | Exception] = loop.create_future()

        def answered(answer: LiveOutput | Exception) -> None:
            loop.call_soon_threadsafe(future.set_result, answer)

        self.core.live_output(after or LiveOutput(), answered)
        return live_output(await future)

    @property
    def state(self) -> AsyncRuntimeState[Self]:
        """What has happened in this runtime: its steps, who wrote what, what depends on it."""
        return AsyncRuntimeState(self.core, self.core.changes, self.fork)

    async def reset(self) -> None:
        """Forgets everything but what was injected, which is back as it was at first."""
        await asyncio.to_thread(self.core.reset)

    async def close(self) -> None:
        """Ends the jail. Closing twice is fine."""
        await asyncio.to_thread(self.core.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _start(self) -> None:
        if not self.core.running:
            await asyncio.to_thread(self.core.start)

    async def _call(self, queue: Callable[[Listener], None]) -> Outcome:
        self.core.refuse_reentry()
        await self._start()
        listener = AsyncListener(self.core.resume)
        queue(listener)
        return await listener.future

    async def _check_known(self, name: str) -> None:
        known = [info.name for info in await self.describe()]
        if name not in known and not name.startswith("_"):  # which `describe` leaves out
            raise UnknownNameError(name, tuple(nearest(name, known)))


def _withdraw(queuing: asyncio.Future[Callable[[], None] | None]) -> None:
    if queuing.cancelled() or queuing.exception() is not None:
        return
    withdraw = queuing.result()
    if withdraw is not None:
        withdraw()


def _end(beginning: asyncio.Future[ProgramHandle]) -> None:
    if not beginning.cancelled() and beginning.exception() is None:
        beginning.result().kill()
