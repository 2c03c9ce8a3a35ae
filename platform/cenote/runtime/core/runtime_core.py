"""A runtime without a face: what the synchronous and the asynchronous one have in common.

It knows what the client put into the namespace, which rules its code obeys and what a jail may call here. Where
the namespace lives is its backend's business.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, NoReturn, SupportsIndex

from cenote.harness.applying.apply import ApplyOptions, ApplyResult
from cenote.harness.applying.auditor import Audit, Auditor
from cenote.harness.artifacts.build import BuildOptions
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.live_state import AppliedPatches
from cenote.harness.planning.plan import Plan
from cenote.runtime.core.arguments import KeptState, Scope, key_of
from cenote.runtime.core.auditing import AuditedRuntime
from cenote.runtime.core.backend import Backend, CheckpointClient, StoringBackend, Withdraw
from cenote.runtime.core.backends import Storage
from cenote.runtime.core.listeners import BlockingListener, Traced, TracedCell, ended_if_raised
from cenote.runtime.core.merge_bases import MergeBases
from cenote.runtime.core.replies import rollback, snapshots
from cenote.runtime.inject.host_function_server import HostFunctionServer, Target
from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable, check_name
from cenote.runtime.inject.injection import Parcel, pack
from cenote.runtime.replay.fresh_runs import LocalFullRuns, LocalSliceRuns, RuntimeVerificationSandbox
from cenote.runtime.replay.harness_client import HarnessClient
from cenote.runtime.replay.patch_client import apply_by_client, build_by_client
from cenote.runtime.replay.patcher import apply_here, build_here
from cenote.runtime.replay.replay_target import RuntimeReplayTarget
from cenote.tracing import (
    CAUSE,
    EXECUTE_TOOL,
    OPERATION,
    OUTCOME,
    PATCH,
    RERUN,
    REUSED,
    RUNTIME,
    SHARE,
    TOOL_ARGUMENTS,
    TOOL_NAME,
    TOOL_TYPE,
    VARIABLE,
    begun,
)
from cenote_security.errors import NameExistsError, NotCopiedError, UsageError
from cenote_security.policy import SandboxPolicy, check_seconds
from cenote_security.rules import CheckSession, SecurityChecker, SecurityError, SecurityViolation
from cenote_worker.checkpoints.errors import carried_out, result_in
from cenote_worker.egress.ledger import Decision
from cenote_worker.execution.programs import ProgramOrder
from cenote_worker.execution.results import (
    Carried,
    ErrorInfo,
    ExecutionResult,
    JailStatus,
    LiveOutput,
    OnError,
    SnapshotInfo,
    StreamName,
    VariableInfo,
)
from cenote_worker.history.bounds import MAX_CAUSE
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.history.history import History
from cenote_worker.history.step import START
from cenote_worker.jail.cells.ipython_syntax import to_python, without_mark
from cenote_worker.runtime.jail_requests import PYTHON, WorkdirRequest, WrittenForm
from cenote_worker.runtime.reruns import Reruns
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.branches import ForkPoint
from cenote_worker.runtime.state.checkpoints import Checkpoints
from cenote_worker.supervisor.program import ProgramHandle, ProgramListener
from cenote_worker.supervisor.requests import Listener, Outcome


@dataclass(frozen=True, slots=True)
class AuthorNames:
    """What the client knows of one namespace: what it has injected, and what the rules remember of its cells."""

    items: dict[str, Injectable]
    rules: CheckSession | None


class RuntimeCore:
    """One namespace, and the client that holds it."""

    def __init__(
        self,
        functions: Sequence[Function],
        variables: Sequence[Variable],
        types: Sequence[Type],
        security_checker: SecurityChecker | None,
        sandbox: SandboxPolicy,
        name: str | None,
        backend: Callable[[SandboxPolicy, HostFunctionServer], Backend],
        storage: Storage | None = None,
        auditor: Auditor | None = None,
    ) -> None:
        if not isinstance(sandbox, SandboxPolicy):
            raise UsageError(f"sandbox is a SandboxPolicy, not {type(sandbox).__name__}")
        if security_checker is not None and not isinstance(security_checker, SecurityChecker):
            raise UsageError(f"security_checker is a SecurityChecker, not {type(security_checker).__name__}")
        if name is not None and not isinstance(name, str):
            raise UsageError(f"a name is a text, not {name!r:.100}")
        items = _all_of(types=types, functions=functions, variables=variables)
        self.name = name
        self.author = ""
        self.scope: Scope = "shared"
        self.changes = AppliedPatches()
        self._auditor = auditor
        self._checker = security_checker
        self._private: dict[str, AuthorNames] = {}
        self.origin: ForkPoint | None = None
        """Set for a branch."""
        self.merge_bases = MergeBases()
        self._prefix = ""
        """Of the addresses of what stays in the client: two namespaces may have one name for different things."""
        self.items: dict[str, Injectable] = {}
        self.classes: dict[str, type] = {}
        self._pid = os.getpid()
        self._targets: dict[tuple[str, str], Target] = {}
        self._sent: set[type] = set()
        self._whole: set[tuple[str, str]] = set()
        self._desk = HostFunctionServer(self._targets, self.classes, self._sent, self._whole)
        self._rules: CheckSession | None = security_checker.session() if security_checker else None
        self.backend = backend(sandbox, self._desk)
        for parcel in self._declared(items):
            self.backend.declare(parcel.injection)
        self._checkpoints = self._opened(storage) if storage is not None else None

    def _opened(self, storage: Storage) -> Checkpoints:
        try:
            return storage.open(self.name, self.backend, self.items.values())
        except BaseException:
            self.close()
            raise

    def shown(self, face: str) -> str:
        """Its repr. Nothing is asked of the runtime: a debugger or a failing test must not wait for a cell."""
        name = f" {self.name!r}" if self.name else ""
        author = f", attached as {self.author!r}" if self.author else ""
        return f"<{face}{name} {f'at {self.backend.place}' if self.backend.place else 'on this machine'}{author}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotCopiedError(
            "a runtime",
            "its state is in a jail; `fork()` copies that, `share(name)` hands a value on, and another process has "
            "the runtime by its name: on a platform, or with PythonRuntime.open(store, name) when this one is closed",
        )

    # -- checkpoints --

    @property
    def checkpoints(self) -> CheckpointClient:
        """Raises UsageError for an embedded runtime without a store."""
        if self._checkpoints is not None:
            return self._checkpoints
        if isinstance(self.backend, StoringBackend):
            return self.backend.checkpoints
        raise UsageError("this runtime stores nothing; make it with store=... and a name")

    # -- life --

    def start(self) -> None:
        """Makes sure that there is a jail. May block. See Backend.start for errors."""
        self.backend.start()

    @property
    def running(self) -> bool:
        """Whether a jail is there, so that `start` would not block."""
        return self.backend.running

    @property
    def isolation(self) -> str:
        """What holds the jail that runs now. Starts one if need be."""
        return self.backend.isolation

    @property
    def policy(self) -> SandboxPolicy:
        """What holds the namespace; until a jail is there, what was asked for."""
        return self.backend.policy

    @property
    def limits(self) -> str:
        """Who holds the limits of the jail that runs now, as a whole. Starts one if need be."""
        return self.backend.limits

    @property
    def carried(self) -> Carried | None:
        return self.backend.carried

    @property
    def network_log(self) -> tuple[Decision, ...]:
        return self.backend.network_log

    def read_history(self) -> History:
        """See Backend."""
        return self.backend.read_history()

    # -- changes of the history, see HistoryOwner; they block --

    def kept(self) -> frozenset[int]:
        where = self._rerunning()
        if isinstance(where, HostedRuntime):
            return self._ground(where, atomic=True).kept()
        answers: SimpleQueue[tuple[SnapshotInfo, ...] | Exception | None] = SimpleQueue()
        self.snapshots(answers.put)
        return frozenset(info.step for info in snapshots(answers.get()))

    def stored(self) -> Mapping[int, int]:
        where = self._rerunning()
        found = (
            self._ground(where, atomic=True).stored() if isinstance(where, HostedRuntime) else where.stored()
        )
        head = self.read_history().tree.head
        return {step: since for step, since in found.items() if step == START or step != head}

    def why_not_begun_again(self) -> str:
        where = self._rerunning()
        return where.begins_otherwise if isinstance(where, HostedRuntime) else where.begins_otherwise()

    def _rerunning(self) -> HostedRuntime | HarnessClient:
        """The runtime where it is in this process, else the client of the platform that has it.

        Raises UsageError where the history cannot be changed.
        """
        self.backend.start()
        line = self.backend.rerunning()
        if not isinstance(line, Reruns):
            return line
        assert isinstance(self.backend, HostedRuntime), "only the owner's backend reruns"
        return self.backend

    def _ground(self, runtime: HostedRuntime, *, atomic: bool, cause: str = "") -> RuntimeReplayTarget:
        return RuntimeReplayTarget(runtime.rerunning(), self.resume, self._rules, atomic=atomic, cause=cause)

    def apply(self, plan: Plan, options: ApplyOptions) -> ApplyResult:
        with begun(PATCH, {RUNTIME: self.name, CAUSE: plan.patch.cause}).whole() as span:
            result = self._applied(plan, options)
            span.set(RERUN, len(result.steps_rerun))
            span.set(REUSED, len(result.steps_reused))
            span.set(OUTCOME, result.status)
        return result

    def _applied(self, plan: Plan, options: ApplyOptions) -> ApplyResult:
        where = self._rerunning()
        if not isinstance(where, HostedRuntime):
            return apply_by_client(plan, options, where, self._rules, self.read_history)
        return apply_here(plan, self._ground(where, atomic=options.atomic, cause=plan.patch.cause), options)

    def audit(self, options: ApplyOptions) -> Audit | None:
        if self._auditor is None:
            return None
        where = self._rerunning()
        line = LocalFullRuns(where) if isinstance(where, HostedRuntime) else where
        audited = AuditedRuntime(self.backend, line, self.policy, self.classes, options.cancelled)
        return self._auditor.audit(audited)

    def declare(self, units: Sequence[ArtifactDeclared]) -> None:
        where = self._rerunning()
        if isinstance(where, HostedRuntime):
            where.history.declared(units)
        else:
            where.declare(units)

    def build(self, options: BuildOptions) -> BuildResult:
        where = self._rerunning()
        if not isinstance(where, HostedRuntime):
            return build_by_client(options, where, self.read_history)
        return build_here(where, self._ground(where, atomic=options.apply.atomic), options)

    def go_back(self, step: int) -> None:
        listener = BlockingListener()
        self.rollback(step, listener)
        rollback(listener.wait(self.resume))

    def stage(self) -> RuntimeVerificationSandbox:
        where = self._rerunning()
        line = LocalSliceRuns(where) if isinstance(where, HostedRuntime) else where
        return RuntimeVerificationSandbox(self.backend, line, self.classes)

    def reset(self) -> None:
        """Ends the jail; the next call starts a fresh one with the injected values as they were at first."""
        self.backend.reset()
        if self._rules is not None:
            self._rules.forget()
            self._rules.define(*self.items)
        for names in self._private.values():
            if names.rules is not None:
                names.rules.forget()
                names.rules.define(*names.items)
        if self._checkpoints is not None and self._checkpoints.durable:
            with carried_out(None):
                self._checkpoints.make()

    def names_of(self, author: str) -> AuthorNames:
        """Those that only this author sees."""
        if author not in self._private:
            self._private[author] = AuthorNames({}, self._checker.session() if self._checker else None)
        return self._private[author]

    def close(self) -> None:
        self.backend.close()
        if self._pid == os.getpid():
            self._desk.close()

    def branch(
        self, backend: Callable[[SandboxPolicy, HostFunctionServer], Backend], name: str | None
    ) -> RuntimeCore:
        """A runtime of its own, over a namespace that holds what this one's does: it knows what this one knows."""
        branch = RuntimeCore((), (), (), self._checker, self.policy, name, backend, auditor=self._auditor)
        branch.items.update(self.items)
        branch.classes.update(self.classes)
        branch._targets.update(self._targets)
        branch._sent.update(self._sent)
        branch._whole.update(self._whole)
        branch._rules = self._rules.branch() if self._rules is not None else None
        return branch

    def rebind(self, bound: Iterable[tuple[Target, Target]]) -> None:
        """Host functions that stand for the first of a pair stand for the second from now on."""
        for former, latter in bound:
            for address, target in self._targets.items():
                if target == former:
                    self._targets[address] = latter
            for name, item in self.items.items():
                if isinstance(item, Function) and item.host and item.func == former:
                    self.items[name] = Function(
                        latter, name=name, host=True, effect=item.effect, by_value=item.by_value
                    )

    # -- cells --

    def check(self, code: str) -> list[SecurityViolation]:
        """What the runtime's rules have against the code; nothing is run."""
        return self._rules.check_code(to_python(without_mark(code))) if self._rules is not None else []

    def execute(
        self,
        code: str,
        timeout: float | None,
        listener: Listener,
        cause: str = "",
        on_error: OnError = "keep",
    ) -> Withdraw | None:
        """Queues a cell. The listener gets an ExecutionResult in any case; None when nothing was queued."""
        if not isinstance(code, str):
            raise UsageError(f"code must be a string, not {type(code).__name__}")
        check_seconds(timeout, "a timeout")
        if not isinstance(cause, str) or len(cause) > MAX_CAUSE:
            raise UsageError(f"a cause is a string of at most {MAX_CAUSE} characters")
        if on_error not in ("keep", "rollback"):
            raise UsageError(f'on_error is "keep" or "rollback", not {on_error!r}')
        if self._rules is not None:
            violations = self.check(code)
            if violations:
                listener.done(_rejected(violations, self.author))
                return None
            listener = _Judge(listener, self._rules)
        span = begun(f"{EXECUTE_TOOL} python", _CELL | {RUNTIME: self.name, CAUSE: cause})
        if not span.recording:
            return self.backend.execute(code, timeout, listener, cause=cause, on_error=on_error)
        span.content(TOOL_ARGUMENTS, code)
        listener = TracedCell(listener, span, self._desk.tracing(span))
        with ended_if_raised(span):
            return self.backend.execute(code, timeout, listener, cause=cause, on_error=on_error)

    def begin(self, order: ProgramOrder, listener: ProgramListener) -> ProgramHandle:
        """Begins a process beside the namespace. May block where no jail is there."""
        return self.backend.begin(order, listener)

    def refuse_reentry(self) -> None:
        """Raises UsageError where the caller is a host function that a cell of this runtime waits for."""
        self._desk.refuse_reentry()

    def interrupt(self) -> bool:
        """Interrupts the running cell. False when none runs, and for an attached author when it is another's."""
        return self.backend.interrupt()

    def resume(self) -> None:
        """A slow listener can take more."""
        self.backend.resume()

    def serve_hosts_on(self, loop: Any) -> None:
        """Async host functions run on this loop until told otherwise (None: a loop of their own)."""
        self._desk.loop = loop

    def status(self, answer: Callable[[JailStatus | Exception | None], None]) -> None:
        self.backend.status(answer)

    def live_output(self, after: LiveOutput, answer: Callable[[LiveOutput | Exception], None]) -> None:
        self.backend.live_output(after, answer)

    def outcome(self, key: str, listener: Listener) -> None:
        self.backend.outcome(key, listener)

    # -- snapshots --

    def snapshots(self, answer: Callable[[tuple[SnapshotInfo, ...] | Exception | None], None]) -> None:
        """What is kept."""
        self.backend.snapshots(answer)

    def snapshot(self, label: str | None, listener: Listener) -> None:
        """Keeps the state."""
        self.backend.snapshot("" if label is None else label, listener)

    def rollback(self, to: KeptState, listener: Listener) -> None:
        """Goes back to a state that is kept."""
        self.backend.rollback(key_of(to), listener)

    # -- values --

    def has_injected(self, items: Iterable[Injectable]) -> bool:
        """Whether one has a name that this client has used before."""
        return any(getattr(item, "name", None) in self.items for item in items)

    def refuse_existing(self, items: Iterable[Injectable], described: Iterable[VariableInfo]) -> None:
        """Raises NameExistsError for one that this client has used before, and no cell has deleted since."""
        there = {info.name for info in described} & self.items.keys()
        for item in items:
            if getattr(item, "name", None) in there:
                raise NameExistsError(item.name)

    @contextmanager
    def injecting(self, items: Iterable[Injectable]) -> Iterator[list[Parcel]]:
        """What is to be injected, pickled. If the body raises, the client knows of its names what it knew before.

        Raises NotTransferableError, UsageError.
        """
        self.backend.check_open()
        items = list(items)
        parcels = self._packed(items)
        addresses = {address for parcel in parcels for address in parcel.targets}
        names = {item.name for item in items}
        former = {name: item for name, item in self.items.items() if name in names}
        targets = {address: self._targets[address] for address in addresses & self._targets.keys()}
        whole = self._whole & addresses
        self._take_up(items, parcels)
        try:
            yield parcels
        except BaseException:
            self.forget(names)
            self.items.update(former)
            self._targets.update(targets)
            self._whole.difference_update(targets)
            self._whole.update(whole)
            raise

    def _declared(self, items: list[Injectable]) -> list[Parcel]:
        for item in items:
            if getattr(item, "name", None) in self.items:
                raise NameExistsError(item.name)
        parcels = self._packed(items)
        self._take_up(items, parcels)
        return parcels

    def _packed(self, items: list[Injectable]) -> list[Parcel]:
        return pack(items, self.backend.place, self._prefix, self._sent)

    def _take_up(self, items: list[Injectable], parcels: list[Parcel]) -> None:
        for parcel in parcels:
            self._targets.update(parcel.targets)
            self._whole.difference_update(parcel.targets)
            self._whole.update(parcel.whole)
            self.classes.update(parcel.classes)
            self._sent.update(parcel.sent)
        for item in items:
            self.items[item.name] = item
        if self._rules is not None:
            self._rules.define(*(item.name for item in items))

    def register(self, items: Iterable[Injectable]) -> None:
        """Takes up what a former process of this client has put there: its host functions are called here now."""
        self.backend.check_open()
        for parcel in self._declared(list(items)):
            parcel.injection.close()

    def inject(self, parcel: Parcel, listener: Listener, *, replace: bool) -> None:
        """Queues an injection; it is repeated in every later jail of this runtime."""
        self.classes.update(parcel.classes)
        self._sent.update(parcel.sent)
        try:
            self.backend.inject(parcel.injection, listener, replace=replace)
        except BaseException:
            parcel.injection.close()
            raise

    def forget(self, names: Iterable[str]) -> None:
        """These names are free again."""
        for name in names:
            self.items.pop(name, None)

    def fetch(self, name: str, listener: Listener, *, opaque: bool, written: WrittenForm = PYTHON) -> None:
        """Queues a request for a value: in the safe encoding, as a sealed pickle, or in another form."""
        check_name(name, "variable")
        self.backend.fetch(name, listener, opaque=opaque, written=written)

    def share(self, name: str, listener: Listener) -> None:
        """Queues a request for a copy that any runtime can have."""
        check_name(name, "variable")
        span = begun(SHARE, {RUNTIME: self.name})
        if span.recording:
            span.content(VARIABLE, name)
            listener = Traced(listener, span)
        with ended_if_raised(span):
            self.backend.share(name, listener)

    def delete(self, name: str, listener: Listener) -> None:
        check_name(name, "variable")
        self.backend.delete(name, listener)

    def describe(self, listener: Listener) -> None:
        self.backend.describe(listener)

    def ask_file(self, ask: WorkdirRequest, listener: Listener) -> None:
        """Queues a request about the working directory."""
        self.backend.file(ask, listener)


_CELL: Final = {OPERATION: EXECUTE_TOOL, TOOL_NAME: "python", TOOL_TYPE: "extension"}


class _Judge:
    """Passes on what happens; tells the rules when a cell that they let pass has succeeded."""

    def __init__(self, listener: Listener, rules: CheckSession) -> None:
        self._listener = listener
        self._rules = rules

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        result = result_in(outcome)
        if result is not None and result.success:
            self._rules.succeeded()
        self._listener.done(outcome)


def _rejected(violations: list[SecurityViolation], author: str) -> ExecutionResult:
    text = str(SecurityError(violations))
    error = ErrorInfo(type="SecurityError", message=text, reason="policy")
    return ExecutionResult(success=False, error=error, author=author)


def _all_of(**lists: Iterable[Injectable]) -> list[Injectable]:
    for name, items in lists.items():
        if not isinstance(items, Iterable):
            raise UsageError(f"{name} is a list, not {items!r:.100}")
    return [item for items in lists.values() for item in items]
