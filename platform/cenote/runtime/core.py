"""A runtime without a face: what the synchronous and the asynchronous one have in common.

Calls that only queue something never block; `start` does. A request's progress goes to a Listener.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cenote.runtime.file_requests import FileAsk
from cenote.runtime.host_desk import HostDesk, Target
from cenote.runtime.injectables import Function, Injectable, Type, Variable, check_name
from cenote.runtime.injection import Parcel, pack
from cenote.runtime.listeners import BlockingListener
from cenote.runtime.refusals import as_error
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import (
    JailLostError,
    NameExistsError,
    RuntimeClosedError,
    RuntimeExpiredError,
    UnavailableError,
    UsageError,
)
from cenote_security.network import Allow
from cenote_security.policy import SandboxPolicy, check_seconds
from cenote_security.rules import CheckSession, SecurityChecker, SecurityError, SecurityViolation
from cenote_worker.content import Content
from cenote_worker.egress.ledger import Decision, Ledger
from cenote_worker.in_jail.rewrite import to_python
from cenote_worker.results import ErrorInfo, ExecutionResult, JailStatus, StreamName
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.edge import RefusedReply
from cenote_worker.supervisor.host_line import HostLine
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import JailRequest, Listener, Outcome
from cenote_worker.supervisor.start import start_jail
from cenote_worker.supervisor.supervisor import Supervisor

FETCH_TIMEOUT = 600.0
"""Seconds that a value may take to be encoded or pickled in its jail: the jail's code runs to do it."""


class RuntimeCore:
    """One namespace: what was put into it, the jail that holds it now, the steps that ran."""

    def __init__(
        self,
        functions: Sequence[Function],
        variables: Sequence[Variable],
        types: Sequence[Type],
        security_checker: SecurityChecker | None,
        sandbox: SandboxPolicy,
        name: str | None,
    ) -> None:
        if not isinstance(sandbox, SandboxPolicy):
            raise UsageError(f"sandbox is a SandboxPolicy, not {type(sandbox).__name__}")
        if security_checker is not None and not isinstance(security_checker, SecurityChecker):
            raise UsageError(f"security_checker is a SecurityChecker, not {type(security_checker).__name__}")
        self.policy = sandbox
        self.name = name
        self.items: dict[str, Injectable] = {}
        self._pid = os.getpid()
        self._lock = threading.RLock()
        # A lock of its own: injections are noted on the reactor's thread, which must never wait for `start`.
        self._noting = threading.Lock()
        self._parcels: list[Parcel] = []
        self._targets: dict[tuple[str, str], Target] = {}
        self.classes: dict[str, type] = {}
        self._desk = HostDesk(self._targets, self.classes)
        self._rules: CheckSession | None = security_checker.session() if security_checker else None
        self._ledger = Ledger(sandbox.network) if isinstance(sandbox.network, Allow) else None
        self._supervisor: Supervisor | None = None
        self._mourned = True
        self._closed = False
        self._step = 0
        self._ends_at: float | None = None
        for parcel in self._declared([*types, *functions, *variables]):
            self._parcels.append(parcel)

    # -- life --

    def start(self) -> None:
        """Makes sure that there is a jail. Blocks for some 10 ms, once per process for the zygote.

        Raises JailLostError, once, when the jail died between two calls; UnavailableError and
        IsolationUnavailableError when no jail can be had.
        """
        with self._lock:
            self._check_open()
            if self.running:
                return
            death = self._unmourned()
            if death is not None:
                self._mourned = True
                raise JailLostError(death.describe())
            self._supervisor = start_jail(self.policy, self._ledger, self._lifetime_left())
            self._mourned = False
            try:
                for parcel in self._noted():
                    self._deliver(self._supervisor, parcel)
            except BaseException:
                self._mourned = True
                self._supervisor.end(Death(reason="closed"))
                raise

    def _started(self) -> Supervisor:
        self.start()
        assert self._supervisor is not None
        return self._supervisor

    def _lifetime_left(self) -> float | None:
        """When the runtime's time is over, counted from its first start. Raises RuntimeExpiredError when it is."""
        limit = self.policy.runtime_timeout
        if limit is None:
            return None
        now = time.monotonic()
        if self._ends_at is None:
            self._ends_at = now + limit
        if now >= self._ends_at:
            raise RuntimeExpiredError(limit)
        return self._ends_at

    def _unmourned(self) -> Death | None:
        """How the jail ended, if it did and nobody was told."""
        return self._supervisor.death if self._supervisor is not None and not self._mourned else None

    @property
    def running(self) -> bool:
        """Whether a jail is there, so that `start` would not block."""
        supervisor = self._supervisor
        return supervisor is not None and supervisor.death is None

    @property
    def isolation(self) -> str:
        """`strict`, `landlock` or `none`: what holds the jail that runs now. Starts one if need be."""
        return self._started().isolation

    @property
    def network_log(self) -> tuple[Decision, ...]:
        """What the proxy decided last, oldest first; empty without a network."""
        return self._ledger.decisions if self._ledger is not None else ()

    @property
    def limits(self) -> str:
        """`cgroup v1`, `cgroup v2` or `watchdog`: who holds the limits of the jail that runs now, as a whole."""
        return self._started().limits

    def reset(self) -> None:
        """Ends the jail; the next call starts a fresh one with the injected values as they were at first."""
        with self._lock:
            self._check_open()
            supervisor, self._supervisor = self._supervisor, None
            self._mourned = True
        if self._rules is not None:
            self._rules.forget()
            self._rules.define(*self.items)
        if supervisor is not None:
            supervisor.end(Death(reason="closed"))

    def close(self) -> None:
        with self._lock:
            if self._closed or self._pid != os.getpid():
                return
            self._closed = True
            supervisor = self._supervisor
        if supervisor is not None:
            supervisor.end(Death(reason="closed"))
        for parcel in self._noted():
            parcel.close()
        self._desk.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeClosedError("this runtime was closed; make a new one")
        if self._pid != os.getpid():
            raise RuntimeClosedError(
                "this runtime belongs to the process that forked this one; make a new one"
            )

    # -- cells --

    def check(self, code: str) -> list[SecurityViolation]:
        """What the runtime's rules have against the code; nothing is run."""
        return self._rules.check_code(to_python(code)) if self._rules is not None else []

    def execute(self, code: str, timeout: float | None, listener: Listener) -> JailRequest | None:
        """Queues a cell. The listener gets an ExecutionResult in any case; None when nothing was queued."""
        if not isinstance(code, str):
            raise UsageError(f"code must be a string, not {type(code).__name__}")
        check_seconds(timeout, "a timeout")
        violations = self.check(code)
        if violations:
            listener.done(_rejected(violations))
            return None
        with self._lock:
            self._step += 1
            death = self._unmourned()
            if death is not None:
                self._mourned = True
                listener.done(death.before(self._step))
                return None
            supervisor = self._started()
            request = self._cell(code, timeout, listener, self._step)
            supervisor.submit(request)
            return request

    def _cell(self, code: str, timeout: float | None, listener: Listener, step: int) -> JailRequest:
        content = Content.pack([code.encode("utf-8", "surrogatepass")])
        message, descriptors = jail_pb2.Request(), list[int]()
        message.execute.step = step
        content.to_wire(message.execute.code, descriptors)
        return JailRequest(
            Ask.EXECUTE,
            message,
            _Witness(listener, self._lost, self._rules),
            descriptors,
            [content.close],
            timeout or self.policy.cell_timeout,
            step,
        )

    def interrupt(self) -> bool:
        """Interrupts the running cell. False when none runs."""
        return self._supervisor.interrupt() if self._supervisor is not None else False

    def withdraw(self, request: JailRequest) -> None:
        if self._supervisor is not None:
            self._supervisor.withdraw(request)

    def resume(self) -> None:
        """A slow listener can take more."""
        if self._supervisor is not None:
            self._supervisor.resume()

    def serve_hosts_on(self, loop: Any) -> None:
        """Async host functions run on this loop until told otherwise (None: a loop of their own)."""
        self._desk.loop = loop

    def status(self, answer: Callable[[JailStatus | None], None]) -> None:
        self._started().status(answer)

    # -- values --

    def prepare(self, items: Iterable[Injectable]) -> list[Parcel]:
        """Pickles what is to be injected. Raises NameExistsError, NotTransferableError, UsageError."""
        self._check_open()
        return self._declared(list(items))

    def _declared(self, items: list[Injectable]) -> list[Parcel]:
        for item in items:
            if getattr(item, "name", None) in self.items:
                raise NameExistsError(item.name)
        parcels = pack(items)
        for parcel in parcels:
            self._targets.update(parcel.targets)
            self.classes.update(parcel.classes)
        for item in items:
            self.items[item.name] = item
        if self._rules is not None:
            self._rules.define(*(item.name for item in items))
        return parcels

    def inject(self, parcel: Parcel, listener: Listener, *, replace: bool) -> None:
        """Queues an injection; it is repeated in every later jail of this runtime."""
        with self._lock:
            supervisor = self._started()
            self.classes.update(parcel.classes)
            keep = _Keeper(listener, lambda: self._keep(parcel))
            supervisor.submit(self._injection(supervisor, parcel, keep, replace=replace))

    def forget(self, names: Iterable[str]) -> None:
        """The injection of these names failed: they are free again."""
        for name in names:
            self.items.pop(name, None)

    def _keep(self, parcel: Parcel) -> None:
        with self._noting:
            superseded = [old for old in self._parcels if old.replaces and old.replaces == parcel.replaces]
            self._parcels = [old for old in self._parcels if old not in superseded] + [parcel]
        for old in superseded:
            old.close()

    def _noted(self) -> list[Parcel]:
        with self._noting:
            return list(self._parcels)

    def fetch(self, name: str, listener: Listener, *, opaque: bool) -> None:
        """Queues a request for a value: in the safe encoding, or as a sealed pickle."""
        check_name(name, "variable")
        message = jail_pb2.Request()
        message.fetch.name, message.fetch.opaque = name, opaque
        self._ask(Ask.FETCH, message, listener, timeout=FETCH_TIMEOUT)

    def delete(self, name: str, listener: Listener) -> None:
        check_name(name, "variable")
        message = jail_pb2.Request()
        message.delete.name = name
        self._ask(Ask.DELETE, message, listener)

    def describe(self, listener: Listener) -> None:
        message = jail_pb2.Request()
        message.describe.SetInParent()
        self._ask(Ask.DESCRIBE, message, listener)

    def ask_file(self, ask: FileAsk, listener: Listener) -> None:
        """Queues a request about the working directory."""
        witness = _Witness(listener, self._lost)
        request = JailRequest(
            ask.ask, ask.message, witness, ask.descriptors, ask.owned, timeout=FETCH_TIMEOUT
        )
        try:
            self._started().submit(request)
        except BaseException:
            request.dispose()
            raise

    def _ask(
        self, ask: Ask, message: jail_pb2.Request, listener: Listener, timeout: float | None = None
    ) -> None:
        self._started().submit(JailRequest(ask, message, _Witness(listener, self._lost), timeout=timeout))

    def _lost(self) -> None:
        """Somebody was told that the jail died; nobody has to be told again."""
        self._mourned = True

    # -- injections into a fresh jail --

    def _deliver(self, supervisor: Supervisor, parcel: Parcel) -> None:
        listener = BlockingListener()
        supervisor.submit(self._injection(supervisor, parcel, listener, replace=True))
        outcome = listener.wait(supervisor.resume)
        if isinstance(outcome, RefusedReply):
            raise as_error(outcome, ", ".join(parcel.names))
        if isinstance(outcome, Exception):
            raise UnavailableError(f"the runtime's jail ended while it was filled: {outcome}") from outcome

    def _injection(
        self, supervisor: Supervisor, parcel: Parcel, listener: Listener, *, replace: bool
    ) -> JailRequest:
        descriptors: list[int] = []
        needs_channel = bool(parcel.hosts) and not supervisor.has_host_line
        owned: list[Callable[[], None]] = []
        message = parcel.request(replace=replace, channel=needs_channel, descriptors=descriptors, owned=owned)
        if needs_channel:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            supervisor.open_host_line(HostLine(ours, self._desk, 2 * self.policy.memory_bytes))
            descriptors.append(theirs.fileno())
            owned.append(theirs.close)
        return JailRequest(Ask.INJECT, message, listener, descriptors, owned, timeout=FETCH_TIMEOUT)


class _Witness:
    """Passes on what happens; notes a cell's success, and when its hearer learns that the jail is gone."""

    def __init__(
        self, listener: Listener, lost: Callable[[], None], rules: CheckSession | None = None
    ) -> None:
        self._listener = listener
        self._lost = lost
        self._rules = rules

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, JailLostError) or (
            isinstance(outcome, ExecutionResult) and outcome.state == "lost"
        ):
            self._lost()
        if self._rules is not None and isinstance(outcome, ExecutionResult) and outcome.success:
            self._rules.succeeded()
        self._listener.done(outcome)


class _Keeper:
    """Notes that an injection succeeded before its caller hears of it."""

    def __init__(self, listener: Listener, keep: Callable[[], None]) -> None:
        self._listener = listener
        self._keep = keep

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Exception | RefusedReply):
            self._keep()
        self._listener.done(outcome)


def _rejected(violations: list[SecurityViolation]) -> ExecutionResult:
    text = str(SecurityError(violations))
    return ExecutionResult(
        success=False, error=ErrorInfo(type="SecurityError", message=text, reason="policy")
    )
