"""A runtime that lives on a platform, as a Backend: RuntimeCore cannot tell it from an embedded one.

A further author of such a runtime is a client of its own there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cenote.runtime.core.backend import NO_RETENTION, Backend, RetentionOptions, ServedBranch, Withdraw
from cenote.runtime.inject.host_function_server import HostFunctionServer
from cenote.runtime.remote import calls, state_copies
from cenote.runtime.remote import session as awaited
from cenote.runtime.remote.address import LONGEST_WAIT
from cenote.runtime.remote.background import background
from cenote.runtime.remote.calls import FRAMES, Answer, Output, PendingCall, Request
from cenote.runtime.remote.channels import new_key
from cenote.runtime.remote.environments import with_built_environment
from cenote.runtime.remote.history import HistoryCopy, RemoteHarness
from cenote.runtime.remote.host_calls import RemoteCalls
from cenote.runtime.remote.platform_client import LEASE, PlatformClient
from cenote.runtime.remote.processes import RemoteProcess
from cenote.runtime.remote.reconnection import without_waiting
from cenote.runtime.remote.session import CLOSED, RuntimeSession, ServedAt
from cenote.runtime.remote.state_copies import RemoteCheckpoints
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import platform_pb2, runtime_pb2
from cenote_security.errors import CenoteError, NameExistsError, RuntimeClosedError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.ledger import Decision
from cenote_worker.execution.programs import ProgramOrder
from cenote_worker.execution.results import JailStatus, LiveOutput, OnError, SnapshotInfo
from cenote_worker.history.history import History
from cenote_worker.runtime.injection import Injection, stubs
from cenote_worker.runtime.jail_requests import PYTHON, WorkdirRequest, WrittenForm
from cenote_worker.runtime.snapshots import check_label, check_target
from cenote_worker.runtime.state.branches import ForkOrder, ForkPoint
from cenote_worker.supervisor.program import ProgramListener
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import Listener, Outcome
from cenote_worker.transport.content import Holding
from cenote_worker.wire.policies import to_policy
from cenote_worker.wire.results import to_decisions

START: Final = LONGEST_WAIT + 120.0
"""Seconds for a runtime to be made and its jail to be filled."""

FORK: Final = 360.0
"""Seconds for branches to be made: for as many tries as there are, see `state_copies`."""

QUESTION: Final = 30.0
"""Seconds for questions that the platform answers at once."""

LEAVING: Final = 5.0
"""Seconds to tell the platform that this client goes; then its lease says so."""


@dataclass(slots=True)
class _Declared:
    """What the runtime begins with. key: the same for each try, so that it is put there once."""

    injection: Injection
    key: str = field(default_factory=new_key)


class RemoteRuntime:
    """See Backend. name: of a runtime that outlives its clients; empty for one that ends with this one.

    attach: join a runtime of that name, if there is one. author, private: see Hello.
    client_name: of one that goes on where another process of that name has stopped; by default a new name.
    cell_key: gives the key of the next cell, where another process may have sent that before.
    lease: seconds that a runtime with a name outlives its last client; 0 until it is deleted.
    kept: see RetentionOptions.
    id: of one that is there, and ends with this one unless it has a name.
    """

    def __init__(
        self,
        client: PlatformClient,
        policy: SandboxPolicy,
        desk: HostFunctionServer,
        name: str = "",
        *,
        attach: bool = False,
        author: str = "",
        private: bool = False,
        client_name: str = "",
        cell_key: Callable[[], str] = new_key,
        lease: float = 0.0,
        kept: RetentionOptions = NO_RETENTION,
        id: str = "",
    ) -> None:
        self._platform = client
        self._cell_key = cell_key
        self._kept_there = kept
        self.policy = policy
        self._name = name
        self._attach = attach
        self._lease = lease
        self._author = author
        """Empty: the owner, with whom a runtime without a name ends."""
        self._private = private
        self._desk = desk
        self._pid = os.getpid()
        self._client = client_name or secrets.token_hex(16)
        """This client's name, over all its lines: host functions and shared values are known to be its own by it."""
        self._creation = new_key()
        self._id = id
        """Of the runtime, once there is one."""
        self._forked_at: ForkPoint | None = None
        self._declared: list[_Declared] = []
        self._cells: set[PendingCall] = set()
        self._session: RuntimeSession | None = None
        self._opening: asyncio.Task[None] | None = None
        self._started = runtime_pb2.Started()
        self._ready = False
        self._closed = False
        self._history = HistoryCopy()
        self._processes: set[RemoteProcess] = set()
        """That run beside the namespace for this client. On the background loop only."""

    # -- life --

    @property
    def place(self) -> str:
        return self._platform.address

    def start(self) -> None:
        self.check_open()
        if not self.running:
            if self._session is None:
                self.policy = with_built_environment(self._platform.destination, self.policy)
            background().wait(self._open(), START + self._platform.wait, "start the runtime")

    def check_open(self) -> None:
        if self._closed:
            raise RuntimeClosedError(CLOSED)
        if self._pid != os.getpid():
            raise RuntimeClosedError(
                "this runtime belongs to the process that forked this one; make a new one"
            )

    @property
    def running(self) -> bool:
        session = self._session
        return self._ready and not self._closed and session is not None and session.ended is None

    async def _open(self) -> None:
        """One opening for all who wait; it goes on when they go."""
        if not self.running and (self._opening is None or self._opening.done()):
            self._opening = background().spawn(self._opened())
        if self._opening is not None:
            await asyncio.shield(self._opening)

    async def _opened(self) -> None:
        self._ready = False
        if self._session is None or self._session.ended is not None:
            self._session = await self._attached()
        session = self._session
        await session.open()
        self.policy = to_policy(session.welcome.policy)
        while self._declared:
            await self._give(session, self._declared[0])
            self._declared.pop(0)
        frame = runtime_pb2.ClientFrame(start=runtime_pb2.Start())
        self._started = (await awaited.answer(session, frame)).started
        self._ready = True

    async def _attached(self) -> RuntimeSession:
        described = await self._described()
        self._id, self._forked_at = described.id, state_copies.point_of(described)
        session = RuntimeSession(
            self._platform.locating(described),
            self._platform.channels.stream,
            self._client,
            self._author,
            private=self._private,
            wait=self._platform.wait,
        )
        session.hosts = RemoteCalls(
            self._desk, session, self._hold, place=self.place, limit=2 * self.policy.memory_bytes
        )
        return session

    async def opened(self) -> str:
        """The id of the runtime, which is there."""
        await self._open()
        return self._id

    async def _described(self) -> platform_pb2.RuntimeDescription:
        if self._id:
            return await self._platform.describe(self._id)
        return await self._platform.runtime(
            self._name,
            self.policy,
            attach=self._attach,
            key=self._creation,
            lease=self._lease,
            kept=self._kept_there,
        )

    async def _give(self, session: RuntimeSession, declared: _Declared) -> None:
        """A durable runtime that is there again has the values as they were; what stays here is given again."""
        injection = declared.injection
        try:
            await awaited.put(session, injection, declared.key, replace=False)
        except NameExistsError:
            if not self._kept_there.durable:
                raise
            if injection.hosts:
                await awaited.put(session, stubs(injection.hosts), new_key(), replace=True)
        injection.close()

    def reset(self) -> None:
        self.check_open()
        if self._session is not None:
            self.asked(runtime_pb2.ClientFrame(reset=runtime_pb2.Reset()), "reset the runtime", changes=True)

    def close(self) -> None:
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        for declared in self._declared:
            declared.injection.close()
        with contextlib.suppress(CenoteError):  # whatever keeps it from being told: its lease ends it
            if background().is_here:  # a garbage collector's visit: waiting here would deadlock
                background().spawn(self._leave())
            else:
                background().wait(self._leave(), LEAVING, "end the runtime")

    async def _leave(self) -> None:
        for process in self._processes:
            process.kill()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self._session is not None:
            await self._session.close(self._farewell())
        if self._id and not (self._name or self._author):
            with without_waiting():  # else its lease ends it
                await self._platform.delete(self._id)

    def _farewell(self) -> str:
        if not self._author:
            return CLOSED
        return f"{self._author} was detached: what ran was interrupted, and what waited is not run"

    def attach(self, author: str, *, private: bool) -> Backend:
        self.check_open()
        return AttachedRemoteRuntime(
            self, self._platform, self.policy, self._desk, self._name, author, private=private
        )

    # -- snapshots --

    def snapshots(self, answer: Callable[[tuple[SnapshotInfo, ...] | Exception | None], None]) -> None:
        self.start()
        frame = runtime_pb2.ClientFrame(snapshots=runtime_pb2.SnapshotsQuestion())
        call = PendingCall(frame=frame, settle=lambda given: answer(calls.snapshots_of(given)), limit=FRAMES)
        background().post(self._current().call, call)

    def snapshot(self, label: str, listener: Listener) -> None:
        check_label(label)
        self.start()
        self._call(calls.snapshot(label), listener, changes=True)

    def rollback(self, to: int | str, listener: Listener) -> None:
        check_target(to)
        self.start()
        self._call(calls.rollback(to), listener, changes=True)

    def rerunning(self) -> RemoteHarness:
        """Of a runtime that was started."""
        return RemoteHarness(self._current(), self._cells, self)

    def request(self, request: Request, listener: Listener) -> Withdraw:
        """See Asking."""
        return self._call(request, listener)

    # -- branches, and states that are stored --

    def fork(self, order: ForkOrder, count: int, names: Sequence[str]) -> list[ServedBranch]:
        self.start()
        # Without names they end with their client, as other runtimes do that are given none.
        lease = 0.0 if names else LEASE
        request = state_copies.fork_request(self._id, order, count, names, lease=lease)
        made = background().wait(state_copies.forked(self._platform, request), FORK, "fork the runtime")
        return [
            state_copies.branch_there(partial(self._open_branch, lasting=bool(names)), each) for each in made
        ]

    def _open_branch(
        self, described: platform_pb2.RuntimeDescription, desk: HostFunctionServer, *, lasting: bool
    ) -> RemoteRuntime:
        """As the same client, whose host functions are called from there too."""
        policy, name = to_policy(described.policy), described.name if lasting else ""
        return RemoteRuntime(self._platform, policy, desk, name, client_name=self._client, id=described.id)

    def fork_point(self) -> ForkPoint | None:
        self.start()
        return self._forked_at

    @property
    def checkpoints(self) -> RemoteCheckpoints:
        def ask(frame: runtime_pb2.ClientFrame, what: str, patience: float) -> runtime_pb2.ServerFrame:
            self.start()
            return background().wait(awaited.answer(self._current(), frame), patience, what)

        return RemoteCheckpoints(ask)

    # -- questions that are waited for --

    @property
    def isolation(self) -> str:
        self.start()
        return self._started.isolation

    @property
    def limits(self) -> str:
        self.start()
        return self._started.limits

    carried = None
    """See Backend. The news of the first cell say it."""

    @property
    def network_log(self) -> tuple[Decision, ...]:
        frame = runtime_pb2.ClientFrame(network_log=runtime_pb2.NetworkLogQuestion())
        return to_decisions(self.asked(frame, "answer").network_log)

    def read_history(self) -> History:
        return self._history.read(lambda frame: self.asked(frame, "tell its history"))

    def asked(
        self, frame: runtime_pb2.ClientFrame, what: str, *, changes: bool = False
    ) -> runtime_pb2.ServerFrame:
        """See Asking."""
        self.start()
        return background().wait(awaited.answer(self._current(), frame, changes=changes), QUESTION, what)

    # -- cells --

    def execute(
        self,
        code: str,
        timeout: float | None,
        listener: Listener,
        *,
        cause: str = "",
        on_error: OnError = "keep",
    ) -> Withdraw | None:
        self.start()
        read = calls.outcome_of if self._name or self._author else calls.cell_outcome_of
        frame, content = calls.cell(code, timeout, cause, atomic=on_error == "rollback")
        frame.key = utf8_text(self._cell_key())
        return self._call((frame, content), listener, read, changes=True, output=listener.output)

    def begin(self, order: ProgramOrder, listener: ProgramListener) -> RemoteProcess:
        self.start()
        session = self._current()
        assert session.place is not None, "a session that stands has a place"
        process = RemoteProcess(order, self._client, listener)
        run = partial(process.run, session.place, self._located, self._platform.channels.stream)

        def spawn() -> None:
            self._processes.add(process)
            background().spawn(run()).add_done_callback(lambda _: self._processes.discard(process))

        background().post(spawn)
        return process

    async def _located(self) -> ServedAt:
        return await self._platform.locating(await self._platform.describe(self._id))()

    def interrupt(self) -> bool:
        session = self._session
        if session is None or not self._cells:
            return False
        background().post(session.say, runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
        return True

    def resume(self) -> None:
        if self._session is not None:
            background().post(self._session.heard)

    def status(self, answer: Callable[[JailStatus | Exception | None], None]) -> None:
        self.start()
        frame = runtime_pb2.ClientFrame(status=runtime_pb2.StatusQuestion())
        call = PendingCall(frame=frame, settle=lambda given: answer(calls.status_of(given)), limit=FRAMES)
        background().post(self._current().call, call)

    def live_output(self, after: LiveOutput, answer: Callable[[LiveOutput | Exception], None]) -> None:
        self.start()
        frame = calls.live_output(after)
        call = PendingCall(
            frame=frame, settle=lambda given: answer(calls.live_output_of(given)), limit=FRAMES
        )
        background().post(self._current().call, call)

    def outcome(self, key: str, listener: Listener) -> None:
        self.start()
        frame = runtime_pb2.ClientFrame(outcome=make(runtime_pb2.OutcomeQuestion, key=key))
        self._call((frame, None), listener)

    # -- values --

    def declare(self, injection: Injection) -> None:
        self._declared.append(_Declared(injection))

    def inject(self, injection: Injection, listener: Listener, *, replace: bool) -> None:
        self.start()
        self._call(calls.injection(injection, replace=replace), listener, changes=True)
        injection.close()  # what travels is a duplicate; from now on it is the platform's to repeat

    def fetch(self, name: str, listener: Listener, *, opaque: bool, written: WrittenForm = PYTHON) -> None:
        self.start()
        self._call(calls.fetch(name, opaque=opaque, written=written), listener)

    def share(self, name: str, listener: Listener) -> None:
        self.start()
        self._call(calls.share(name), listener, calls.shared_by(self._kept))

    def share_together(self, names: Sequence[str], states: Sequence[str], listener: Listener) -> None:
        self.start()
        self._call(calls.share_together(names, states), listener, calls.shared_by(self._kept))

    def delete(self, name: str, listener: Listener) -> None:
        self.start()
        self._call(calls.deletion(name), listener, changes=True)

    def describe(self, listener: Listener) -> None:
        self.start()
        self._call(calls.description(), listener)

    def file(self, ask: WorkdirRequest, listener: Listener) -> None:
        try:
            self.start()
        except BaseException:
            ask.close()
            raise
        self._call(calls.file(ask), listener, changes=ask.ask is RequestKind.CHANGE_FILE)

    def _kept(self, reference: str) -> Holding:
        return self._platform.references.keep(reference, self._client)

    def _hold(self, reference: str) -> Awaitable[Holding]:
        return self._platform.references.hold(reference, self._client)

    # -- calls --

    def _call(
        self,
        request: Request,
        listener: Listener,
        read: Callable[[Answer], Outcome] = calls.outcome_of,
        *,
        changes: bool = False,
        output: Output | None = None,
    ) -> Withdraw:
        """Queues it, for a runtime that was started. The listener hears of it in any case."""
        frame, content = request
        session = self._current()

        def settle(answer: Answer) -> None:
            self._cells.discard(call)
            try:
                outcome = read(answer)
            except CenoteError as error:
                outcome = error
            listener.done(outcome)

        limit = max(FRAMES, 2 * self.policy.memory_bytes)
        call = PendingCall(
            frame=frame, settle=settle, limit=limit, changes=changes, content=content, output=output
        )
        if output is not None:
            self._cells.add(call)
        try:
            background().post(session.call, call)
        except RuntimeClosedError:
            call.close()
            raise
        return lambda: self._withdraw(session, call)

    def _withdraw(self, session: RuntimeSession, call: PendingCall) -> None:
        self._cells.discard(call)
        with contextlib.suppress(RuntimeClosedError):  # the process ends, and the line with it
            background().post(session.withdraw, call)

    def _current(self) -> RuntimeSession:
        assert self._session is not None, "a runtime that was started has a session"
        return self._session


class AttachedRemoteRuntime(RemoteRuntime):
    """See Backend.attach. The runtime is the owner's, made when either is first used; it goes on without this one."""

    def __init__(
        self,
        owner: RemoteRuntime,
        client: PlatformClient,
        policy: SandboxPolicy,
        desk: HostFunctionServer,
        name: str,
        author: str,
        *,
        private: bool,
    ) -> None:
        super().__init__(client, policy, desk, name, author=author, private=private)
        self._owner = owner

    def check_open(self) -> None:
        self._owner.check_open()
        if self._closed:
            raise RuntimeClosedError(f"{self._author} was detached from this runtime; attach again")
        super().check_open()

    def attach(self, author: str, *, private: bool) -> Backend:
        return self._owner.attach(author, private=private)

    def reset(self) -> None:
        """Raises UsageError: others hold this runtime too."""
        raise UsageError("only the owner of a runtime can reset it, not an author who is attached")

    def rollback(self, to: int | str, listener: Listener) -> None:  # noqa: ARG002
        """Raises UsageError: others hold this runtime too."""
        raise UsageError("only the owner of a runtime can roll it back, not an author who is attached")

    def rerunning(self) -> RemoteHarness:
        """Raises UsageError: others hold this runtime too."""
        raise UsageError("only the owner of a runtime can patch its history, not an author who is attached")

    def fork(self, order: ForkOrder, count: int, names: Sequence[str]) -> list[ServedBranch]:  # noqa: ARG002
        """Raises UsageError: others hold this runtime too."""
        raise UsageError("only the owner of a runtime forks it, not an author who is attached")

    async def _described(self) -> platform_pb2.RuntimeDescription:
        return await self._platform.describe(self._id or await self._owner.opened())
