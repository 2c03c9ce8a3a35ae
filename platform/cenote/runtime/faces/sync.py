"""PythonRuntime: the face for code that waits."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Literal, Self, overload

from cenote.harness.applying.apply import ApplyResult
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.live_state import RuntimeState
from cenote.runtime.core.arguments import KeptState, Scope
from cenote.runtime.core.auditing import auditor_of
from cenote.runtime.core.backends import Storage, StoreURL, backend_at
from cenote.runtime.core.derived import AttachedCore, Several, fork, stored_runtime
from cenote.runtime.core.listeners import BlockingListener, OnOutput
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
from cenote.runtime.faces.files import Files
from cenote.runtime.faces.process import Process, run
from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable, check_name
from cenote.runtime.inject.injection import value_parcel
from cenote.runtime.inject.references import ObjectReference
from cenote_security.errors import UnknownNameError
from cenote_security.policy import SandboxPolicy
from cenote_security.rules import SecurityChecker
from cenote_worker.checkpoints.store import CheckpointInfo
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
from cenote_worker.supervisor.requests import Listener, Outcome


class PythonRuntime(RuntimeFace):
    """A persistent Python namespace in a jail of its own.

    functions, variables, types: what the namespace starts with, pickled now and in one piece, so that objects
    that share state go on sharing it. security_checker: rules that code must pass before it runs. sandbox: what
    the jail may do. address: of a platform, as `host:port`, by default what CENOTE_ADDRESS says; without either, or
    with `"embedded"`, the jail is one of this machine. token: what opens that platform, by default what CENOTE_TOKEN
    or the token file of `cenote up` says. name: for people. history: where the record of an embedded runtime's steps
    is kept, beyond this process: a SQLite file, or the URL of a database, in which it has its `name`. store: where
    its checkpoints go, a folder or any URL that fsspec knows, found there by the name; see `checkpoint`. durable:
    every cell and every change is stored before its call returns, so that `restore` gives it back whatever is killed
    then; calls raise NotDurableError where it cannot be. audit_patches: the share of patches and builds, from 0 to
    1, behind which the patched history is run in full in a second jail while the caller waits; a difference raises
    UnsoundError.

    The jail starts with the first call. Close the runtime, or use it in a `with` block; one that is forgotten is
    closed when it is garbage collected.

    Raises NotTransferableError, NameExistsError and UsageError for what cannot be injected; calls raise
    IsolationUnavailableError where the machine cannot hold such a jail, RuntimeClosedError after `close`.
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
    def restore(
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
        """A runtime that begins with a checkpoint of the runtime `name`, and goes on storing under that name.

        checkpoint: a number or a label; the newest by default. What stays in the client (host functions and objects,
        sub-agents) is given again, as are types that `retrieve` is to rebuild; anything else of the same name is as
        it was stored. partial: begin without what cannot be given back. audit_patches: see PythonRuntime.

        It goes on exactly, from an image of the process, where that can be had; `carried` says why not, once there
        is a jail. Else what cannot be stored (generators, connections, locks, open files) is made again by running
        steps, without calling host functions, when the first call starts the jail. That call raises
        IncompleteRestoreError if they do something else than the first time.

        Raises IncompleteRestoreError that names what would be missing: before anything starts, or, where there is an
        image that may have it, once a jail has shown that it cannot be used; UnknownEntryError,
        CheckpointDamagedError, StoreBusyError.
        """
        kept = Storage(url=store, durable=durable, begin="stored", checkpoint=checkpoint, partial=partial)
        given = functions, variables, types, security_checker, sandbox, history, audit_patches
        return cls.holding(stored_runtime(kept, name, *given))

    @classmethod
    def open(
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
        """The runtime of that name as its newest checkpoint has it, or a new one if the store has none.

        So a script that is started again goes on where it was. A new one begins with all that is given; one that
        goes on takes of that what `restore` takes, its values are as they were stored. durable: see PythonRuntime;
        without it there is again what `checkpoint` and `hibernate` have stored, and no more.

        Raises what `restore` raises: state that is damaged, or would come back in part, is never taken for none.
        """
        kept = Storage(url=store, durable=durable, begin="either", partial=partial)
        given = functions, variables, types, security_checker, sandbox, history, audit_patches
        return cls.holding(stored_runtime(kept, name, *given))

    # -- cells --

    def execute(
        self,
        code: str,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
        *,
        cause: str = "",
        on_error: OnError = "keep",
    ) -> ExecutionResult:
        """Runs one cell. Never raises for what the code does: see the result.

        timeout: seconds, else the policy's `cell_timeout`; the cell is interrupted, and killed two seconds later
        if it goes on. on_output: called with ("stdout" | "stderr", text) while the cell runs, on this thread.
        cause: what made you run it, such as the id of a model call; `state` tells it. on_error: `rollback` makes the
        cell atomic: if it fails in any way, variables and files are as they were before it (`result.state` is
        `rolled_back`), unless that state could not be kept, which `result.unkept` explains.
        """
        self.core.refuse_reentry()
        listener = BlockingListener(on_output)
        withdraw = self.core.execute(code, timeout, listener, cause, on_error)
        try:
            outcome = listener.wait(self.core.resume)
        except BaseException:
            if withdraw is not None:
                withdraw()
            raise
        return result(outcome)

    def interrupt(self) -> bool:
        """Interrupts the running cell, from another thread. False when none runs.

        The owner's call interrupts the cell of any author, an attached author's only their own. On a platform each
        client, the owner's too, interrupts only its own.
        """
        return self.core.interrupt()

    def outcome(self, key: str) -> ExecutionResult | ApplyResult | BuildResult | None:
        """What became of a call whose answer was lost, by the key that OutcomeUnknownError named.

        Waits for one that runs. A cell gives its result, a patch and a build too, a call that gives nothing None; one
        that failed raises what it raised. Raises OutcomeUnknownError when nothing is known of such a call: it has not
        run, or long ago.
        """
        outcome = self._call(lambda listener: self.core.outcome(key, listener))
        return past(outcome, self.core.read_history)

    # -- processes --

    def run(
        self,
        command: Command,
        *,
        stdin: Input = None,
        env: Mapping[str, str] | None = None,
        cwd: Folder = None,
        timeout: float | None = None,
        max_output: int | None = None,
    ) -> ProcessResult:
        """Runs a program beside the namespace, in the same jail, and waits for its end; a cell that runs goes on.

        command: a text for `sh -c`, or a list of a program and its arguments. stdin: what it reads; nothing by
        default. env: added to the jail's variables. cwd: its folder, the working directory by default. timeout:
        seconds, else the policy's `cell_timeout`; then the program and all that it has started are killed.
        max_output: bytes of each stream that are kept, of its beginning and its end; by default, and at most, the
        policy's `output`. What the program leaves running in the background when it ends goes on.

        Never raises for what the program does: see the result. Raises UsageError, and what `execute` raises where
        there is no jail.
        """
        policy = self.core.policy
        limit = policy.cell_timeout if timeout is None else timeout
        asked = order(command, env=env, cwd=cwd, timeout=limit, has_input=stdin is not None)
        return run(self.core.begin, asked, stdin, most_output(max_output, policy))

    def spawn(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Folder = None,
        timeout: float | None = None,
        pty: Terminal = False,
    ) -> Process:
        """Begins a program as `run` does, and gives it to be fed, read and signalled while it runs.

        pty: whether a terminal is all of its streams, or the rows and columns of one; they are pipes by default.
        timeout: none by default. It ends with the jail, with a rollback to a state from before it began, and where a
        worker that dies takes the runtime back to one.
        """
        asked = order(command, env=env, cwd=cwd, timeout=timeout, has_input=True, pty=pty)
        feed = ProcessFeed()
        return Process(self.core.begin(asked, feed), feed, self.core.policy.output_bytes)

    # -- snapshots --

    def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """The states that are kept in memory, by step: `rollback` can go back to each."""
        answers: SimpleQueue[tuple[SnapshotInfo, ...] | Exception | None] = SimpleQueue()
        self.core.snapshots(answers.put)
        return snapshots(answers.get())

    def snapshot(self, label: str | None = None) -> SnapshotInfo:
        """Keeps the state as it is now; with a label it is kept longer than others, and found by it.

        Raises UnavailableError with the reason why it cannot be kept, such as threads that are running.
        """
        return snapshot(self._call(partial(self.core.snapshot, label)), label)

    def rollback(self, to: KeptState) -> Rollback:
        """Goes back to the state after step `to`, 0 for the beginning, of a label or a snapshot; in milliseconds.

        Every object is as it was, open generators and closures too; connections, pipes, threads and processes are
        not, and are named in what this returns. The files of the working directory come back too, but for those that
        are too large, which are named as well. The state before is kept, if it can be: roll back to its step to have
        it again. Raises NotKeptError, and does nothing, when there is no such snapshot.
        """
        return rollback(self._call(partial(self.core.rollback, to)))

    # -- branches --

    @overload
    def fork(
        self,
        step: KeptState | None = None,
        count: Literal[1] = 1,
        *,
        deterministic: bool = False,
        partial: bool = False,
        name: str | None = None,
    ) -> Self: ...

    @overload
    def fork(
        self,
        step: KeptState | None = None,
        *,
        count: Several,
        deterministic: bool = False,
        partial: bool = False,
        name: str | None = None,
    ) -> list[Self]: ...

    @overload
    def fork(
        self,
        step: KeptState | None = None,
        count: int = 1,
        *,
        deterministic: bool = False,
        partial: bool = False,
        name: str | None = None,
    ) -> Self | list[Self]: ...

    def fork(
        self,
        step: KeptState | None = None,
        count: int = 1,
        *,
        deterministic: bool = False,
        partial: bool = False,
        name: str | None = None,
    ) -> Self | list[Self]:
        """A runtime that begins with this one's state; of a `count` above 1 a list of them. Close them.

        The process is copied as it is, with its working directory, into jails of their own, with limits of
        their own; the client's functions and objects are offered there as here. One copy serves all. Where
        no image of the process can be had, see `carried.reason`, the state goes by value. step: begin with a
        kept state instead, as in `rollback`; this runtime goes there and comes back, and calls of others wait
        meanwhile. deterministic: draw the random numbers that this runtime goes on to draw; otherwise the
        generators of `random`, numpy and torch begin anew, while those that are variables are copied as they
        are. By value, what cannot be copied each runtime makes again, as a restore does: by running the steps
        that made it, with recorded answers of the client's functions. partial: begin without what cannot be made
        again either.

        On a platform it is done there, next to the jail: branches are the same tenant's, with the same policy, and
        end when they are closed. name: they stay instead until they are deleted, under this name, of several
        NAME-1, NAME-2 and so on, and are durable if this runtime is.

        Raises IncompleteForkError naming what that is, with the reasons: threads, sockets, what draws
        unseeded random numbers; before anything starts, or where a step does something else this time;
        NotKeptError and UnavailableError for `step`; UsageError for an author who is attached. What a platform
        refuses, such as NameExistsError and QuotaExceededError, it refuses for all branches.
        """
        cores = fork(self.core, step, count, deterministic=deterministic, partial=partial, name=name)
        made = [type(self).holding(core) for core in cores]
        return made[0] if count == 1 else made

    def merge(
        self, branch: Self, names: Iterable[str] | None = None, on_conflict: OnConflict = "refuse"
    ) -> Merge:
        """Takes over variables of a branch that `fork` has made, each by itself; the branch stays as it is.

        names: by default all that the branch has changed since, what it deleted included. on_conflict: of those that
        both sides have changed since: `refuse` raises and merges nothing, `theirs` takes the branch's, `ours` keeps.
        What this client has merged before counts as changed since then, not since the fork.

        Raises MergeConflictError, NotTransferableError for one of `names`, UsageError for what is no branch of this.
        """
        return merge(self.core, branch_core(branch), names, on_conflict)

    # -- values --

    def inject(self, *items: Injectable) -> None:
        """Adds variables, functions and types; given together they share what they share.

        Raises NameExistsError, NotTransferableError, UsageError; then nothing was added.
        """
        if self.core.has_injected(items):
            self.core.refuse_existing(items, self.describe())
        with self.core.injecting(items) as parcels:
            for parcel in parcels:
                done(self._call(partial(self.core.inject, parcel, replace=False)), parcel.names)

    def update_variable(self, name: str, value: Any) -> None:
        """Replaces a variable by a value or by what an ObjectReference stands for.

        A name that begins with an underscore is set, whether it is there or not: such names are not described.

        Raises UnknownNameError for a name that is not there, NotTransferableError for a value that cannot go.
        """
        check_name(name, "variable")
        if name not in self.core.items:
            self._check_known(name)
        parcel = value_parcel(name, value, self.core.backend.place)
        done(self._call(lambda listener: self.core.inject(parcel, listener, replace=True)), name)

    def delete(self, name: str) -> None:
        """Removes a variable; later jails begin without it, too. One that was injected may be gone already.

        Raises UnknownNameError.
        """
        done(self._call(lambda listener: self.core.delete(name, listener)), name)
        self.core.forget([name])

    def retrieve(self, name: str, classes: Iterable[type] = (), *, trusted: bool = False) -> Any:
        """A copy of a variable, rebuilt safely: nothing that a jail sends is unpickled.

        classes: dataclasses, pydantic models, Enums and plain classes that may be rebuilt; those that were
        injected are known already. trusted: unpickle instead; the author of the cell then runs code here.

        Raises UnknownNameError, UnsafeValueError naming the class that was refused, JailLostError.
        """
        outcome = self._call(lambda listener: self.core.fetch(name, listener, opaque=trusted))
        return value(outcome, name, self.core.classes, classes, trusted=trusted)

    def share(self, name: str) -> ObjectReference:
        """A handle to a copy of a variable, to inject into other runtimes without a further copy.

        Raises UnknownNameError, NotTransferableError for what cannot be pickled.
        """
        return reference(self._call(lambda listener: self.core.share(name, listener)), name)

    def describe(self) -> list[VariableInfo]:
        """What the namespace holds: names, types, shapes, sizes; never values."""
        return variables(self._call(self.core.describe))

    @property
    def files(self) -> Files:
        """The working directory of the jail."""
        return Files(self.core, self._call)

    # -- checkpoints --

    def checkpoint(self, label: str = "") -> CheckpointInfo:
        """Stores namespace, working directory and process state, durably, and waits until that is done.

        Only what changed since the checkpoint before is written. Another author's next cell need not wait. An image
        of the process follows; the call waits for that only where the state by value lacks something, or needs steps.
        Raises UsageError for a runtime without a store, CheckpointError; the runtime goes on in any case.
        """
        return self.core.checkpoints.make(label)

    def hibernate(self, *, partial: bool = False) -> CheckpointInfo:
        """Stores the state and ends the jail; the next call goes on with it in another one.

        Raises IncompleteRestoreError when something could not be given back, unless `partial`; the jail goes on then.
        """
        return self.core.checkpoints.hibernate(partial=partial)

    # -- several authors --

    def attach(self, author: str, *, scope: Scope = "shared") -> Self:
        """This runtime for one more author: the same calls, with every step attributed to `author`.

        scope: `shared` works with the names of all; `private` with names of the author's own, and with those of all
        as attributes of `shared` in cells (`shared.df = ...`). Working directory, environment and import path are
        the author's own in both. Cells of all authors run one at a time, in the order in which they came.

        The author's `interrupt` hits the author's cells only. `close` detaches: what waits is withdrawn, what runs
        is interrupted, the runtime goes on; private names are there again when the author comes back. Only the
        owner can `reset`. Raises UsageError for a name that cannot stand in a sentence.
        """
        attached = self.over(AttachedCore(self.core, author, scope, self))
        weakref.finalize(attached, attached.core.close)
        return attached

    # -- life --

    def status(self) -> JailStatus:
        """Memory, processes and the running step, answered even while a cell holds the interpreter lock."""
        answers: SimpleQueue[JailStatus | Exception | None] = SimpleQueue()
        self.core.status(answers.put)
        return status(answers.get())

    def live_output(self, after: LiveOutput | None = None) -> LiveOutput:
        """What the running cell has printed since an earlier look, of any client or author; see LiveOutput.

        The cell does not wait for those who look on: its latest 65,536 characters or so are stored.
        """
        answers: SimpleQueue[LiveOutput | Exception] = SimpleQueue()
        self.core.live_output(after or LiveOutput(), answers.put)
        return live_output(answers.get())

    @property
    def state(self) -> RuntimeState[Self]:
        """What has happened in this runtime: its steps, who wrote what, what depends on it."""
        return RuntimeState(self.core, self.core.changes, self.fork)

    def reset(self) -> None:
        """Forgets everything but what was injected, which is back as it was at first."""
        self.core.reset()

    def close(self) -> None:
        """Ends the jail. Closing twice is fine."""
        self.core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, queue: Callable[[Listener], None]) -> Outcome:
        self.core.refuse_reentry()
        listener = BlockingListener()
        queue(listener)
        return listener.wait(self.core.resume)

    def _check_known(self, name: str) -> None:
        known = [info.name for info in self.describe()]
        if name not in known and not name.startswith("_"):  # which `describe` leaves out
            raise UnknownNameError(name, tuple(nearest(name, known)))
