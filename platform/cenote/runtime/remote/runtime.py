"""A runtime that lives on a platform, as a Backend: what RuntimeCore cannot tell from an embedded one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final, TypeVar

from cenote.runtime.backend import Backend, Withdraw
from cenote.runtime.host_desk import HostDesk
from cenote.runtime.remote.background import loop, wait_for
from cenote.runtime.remote.call import Answer, Call
from cenote.runtime.remote.hosts import RemoteCalls
from cenote.runtime.remote.platform_client import PlatformClient
from cenote.runtime.remote.session import Session
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import (
    JailError,
    RuntimeClosedError,
    UnavailableError,
)
from cenote_security.policy import SandboxPolicy
from cenote_worker.content import Content
from cenote_worker.egress.ledger import Decision
from cenote_worker.hosted.files import FileAsk
from cenote_worker.hosted.injection import Injection
from cenote_worker.hosted.refusals import as_error
from cenote_worker.results import JailStatus
from cenote_worker.supervisor.edge import RefusedReply, read_info
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import Listener, Outcome, SharedReply
from cenote_worker.wire.contents import announce
from cenote_worker.wire.results import to_decisions, to_result, to_status

T = TypeVar("T")

START: Final = 120.0
"""Seconds for a runtime to be made and its jail to be filled."""

QUESTION: Final = 30.0
"""Seconds for questions that the platform answers at once."""

FRAMES: Final = 256 * 2**20
"""Bytes of an answer that is no content: output and displays of one cell, at a policy's largest."""


class RemoteRuntime:
    """See Backend. name: of a runtime that outlives its clients; empty for one that ends with this one.

    attach: join a runtime of that name, if there is one.
    """

    def __init__(
        self,
        client: PlatformClient,
        policy: SandboxPolicy,
        desk: HostDesk,
        name: str = "",
        *,
        attach: bool = False,
    ) -> None:
        self._client = client
        self._policy = policy
        self._name = name
        self._attach = attach
        self._desk = desk
        self._pid = os.getpid()
        self._declared: list[Injection] = []
        self._session: Session | None = None
        self._started = runtime_pb2.Started()
        self._ready = False
        self._closed = False

    # -- life --

    @property
    def place(self) -> str:
        return self._client.address

    def start(self) -> None:
        self.check_open()
        if not self.running:
            wait_for(self._start(), START, "start the runtime")

    def check_open(self) -> None:
        if self._closed:
            raise RuntimeClosedError("this runtime was closed; make a new one")
        if self._pid != os.getpid():
            raise RuntimeClosedError(
                "this runtime belongs to the process that forked this one; make a new one"
            )

    @property
    def running(self) -> bool:
        session = self._session
        return self._ready and not self._closed and session is not None and session.connected

    async def _start(self) -> None:
        if self._session is None or self._session.ended is not None:
            self._session = await self._attached()
        await self._session.open()
        while self._declared:
            await self._give(self._session, self._declared[0])
            self._declared.pop(0)
        frame = runtime_pb2.ClientFrame(start=runtime_pb2.Start())
        self._started = (await _answer(self._session, frame)).started
        self._ready = True

    async def _attached(self) -> Session:
        runtime = await self._client.runtime(self._name, self._policy, attach=self._attach)
        self._attach = True  # what this client made it may come back to
        self._name = self._name or runtime.id
        session = Session(self._client.locating(runtime), self._client.channels.to, author="")
        session.hosts = RemoteCalls(
            self._desk, session, self._client.references.known, 2 * self._policy.memory_bytes
        )
        return session

    async def _give(self, session: Session, injection: Injection) -> None:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        _inject(session, injection, answered.set_result, replace=False)
        answer = await answered
        if isinstance(answer, RefusedReply):
            raise as_error(answer, ", ".join(injection.names))
        if isinstance(answer, Exception):
            raise answer

    @property
    def isolation(self) -> str:
        self.start()
        return self._started.isolation

    @property
    def limits(self) -> str:
        self.start()
        return self._started.limits

    @property
    def network_log(self) -> tuple[Decision, ...]:
        frame = runtime_pb2.ClientFrame(network_log=runtime_pb2.NetworkLogQuestion())
        return to_decisions(self._asked(frame, "answer").network_log)

    def attach(self, author: str, *, private: bool) -> Backend:  # noqa: ARG002
        """Raises UnavailableError: on a platform each author is a client of their own."""
        raise UnavailableError(
            f"{author!r} cannot be attached through this client: on a platform each author is a client of their own"
        )

    def reset(self) -> None:
        self.check_open()
        if self._session is not None:
            self._asked(runtime_pb2.ClientFrame(reset=runtime_pb2.Reset()), "reset the runtime", changes=True)

    def close(self) -> None:
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        for injection in self._declared:
            injection.close()
        with contextlib.suppress(UnavailableError):  # then its lease ends it
            wait_for(self._leave(), QUESTION, "end the runtime")

    async def _leave(self) -> None:
        if self._session is not None:
            await self._session.close()
            await self._client.left(self._name)

    # -- cells --

    def execute(self, code: str, timeout: float | None, listener: Listener) -> Withdraw | None:
        self.start()
        content = Content.pack([code.encode("utf-8", "surrogatepass")])
        frame = runtime_pb2.ClientFrame(cell=runtime_pb2.Cell(timeout=timeout or 0))
        large = announce(frame.cell.code, content)
        return self._call(
            frame, listener, _result, changes=True, content=content if large else None, streams=True
        )

    def interrupt(self) -> bool:
        session = self._session
        if session is None or not session.has_cell:
            return False
        interrupt = runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt())
        loop().call_soon_threadsafe(session.say, interrupt)
        return True

    def resume(self) -> None:
        if self._session is not None:
            loop().call_soon_threadsafe(self._session.heard)

    def status(self, answer: Callable[[JailStatus | None], None]) -> None:
        self.start()

        def settle(given: Answer) -> None:
            known = isinstance(given, runtime_pb2.ServerFrame) and given.HasField("status")
            answer(to_status(given.status) if known else None)  # type: ignore[union-attr]

        self._send(runtime_pb2.ClientFrame(status=runtime_pb2.StatusQuestion()), settle)

    # -- values --

    def declare(self, injection: Injection) -> None:
        self._declared.append(injection)

    def inject(self, injection: Injection, listener: Listener, *, replace: bool) -> None:
        self.start()
        session = self._current()
        loop().call_soon_threadsafe(
            lambda: _inject(
                session, injection, lambda answer: listener.done(_outcome(answer)), replace=replace
            )
        )

    def fetch(self, name: str, listener: Listener, *, opaque: bool) -> None:
        frame = runtime_pb2.ClientFrame()
        frame.fetch.name, frame.fetch.opaque = name, opaque
        self._call(frame, listener)

    def share(self, name: str, listener: Listener) -> None:
        self._call(runtime_pb2.ClientFrame(share=runtime_pb2.Share(name=name)), listener, self._shared)

    def delete(self, name: str, listener: Listener) -> None:
        frame = runtime_pb2.ClientFrame()
        frame.delete.name = name
        self._call(frame, listener, changes=True)

    def describe(self, listener: Listener) -> None:
        frame = runtime_pb2.ClientFrame()
        frame.describe.SetInParent()
        self._call(frame, listener)

    def file(self, ask: FileAsk, listener: Listener) -> None:
        frame = runtime_pb2.ClientFrame(file=ask.message)
        large = ask.content is not None and announce(frame.file.content, ask.content)
        try:
            self.start()
        except BaseException:
            ask.close()
            raise
        content = ask.content if large else None
        self._call(frame, listener, changes=ask.ask is Ask.CHANGE_FILE, content=content)

    def outcome(self, key: str, listener: Listener) -> None:
        """What became of a call whose answer was lost."""
        frame = runtime_pb2.ClientFrame(outcome=runtime_pb2.OutcomeQuestion(key=key))
        self._call(frame, listener, _result)

    def _shared(self, answer: Answer) -> Outcome:
        if isinstance(answer, runtime_pb2.ServerFrame) and answer.HasField("shared"):
            shared = answer.shared
            return SharedReply(self._client.references.hold(shared), read_info(shared.info))
        return _outcome(answer)

    # -- asking --

    def _call(
        self,
        frame: runtime_pb2.ClientFrame,
        listener: Listener,
        read: Callable[[Answer], Outcome] | None = None,
        *,
        changes: bool = False,
        content: Content | None = None,
        streams: bool = False,
    ) -> Withdraw:
        self.start()
        session = self._current()
        output = listener.output if streams else None
        limit = max(FRAMES, 2 * self._policy.memory_bytes)
        reader = read or _outcome
        sent: list[Call] = []

        def send() -> None:
            settle = lambda answer: listener.done(reader(answer))  # noqa: E731
            call = session.call(frame, settle, limit=limit, changes=changes, content=content, output=output)
            sent.append(call)

        loop().call_soon_threadsafe(send)
        return lambda: _soon(lambda: session.withdraw(sent[0]))

    def _send(self, frame: runtime_pb2.ClientFrame, settle: Callable[[Answer], None]) -> None:
        session = self._current()
        loop().call_soon_threadsafe(lambda: session.call(frame, settle, limit=FRAMES))

    def _asked(
        self, frame: runtime_pb2.ClientFrame, what: str, *, changes: bool = False
    ) -> runtime_pb2.ServerFrame:
        self.start()
        return wait_for(_answer(self._current(), frame, changes=changes), QUESTION, what)

    def _current(self) -> Session:
        assert self._session is not None, "a runtime that was started has a session"
        return self._session


async def _answer(
    session: Session, frame: runtime_pb2.ClientFrame, *, changes: bool = False
) -> runtime_pb2.ServerFrame:
    """The one frame that is the answer. Raises the error that came instead."""
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    session.call(frame, answered.set_result, limit=FRAMES, changes=changes)
    answer = await answered
    if isinstance(answer, Exception):
        raise answer
    return answer if isinstance(answer, runtime_pb2.ServerFrame) else runtime_pb2.ServerFrame()


def _inject(
    session: Session, injection: Injection, settle: Callable[[Answer], None], *, replace: bool
) -> None:
    """Sends an injection and closes it once it was answered: from then on it is the platform's to repeat."""
    frame = runtime_pb2.ClientFrame()
    message = frame.injection
    message.name, message.replace, message.replaces = injection.single, replace, injection.replaces
    message.names.extend(injection.names)
    message.hosts.extend(injection.hosts)
    content = None
    if injection.reference:
        message.reference = injection.reference
    elif announce(message.values, injection.values):
        content = injection.values.duplicate()

    def settled(answer: Answer) -> None:
        injection.close()
        settle(answer)

    session.call(frame, settled, limit=FRAMES, changes=True, content=content)


def _outcome(answer: Answer) -> Outcome:
    if isinstance(answer, runtime_pb2.ServerFrame):
        return JailError("the platform gave no answer of the right kind")
    return answer


def _result(answer: Answer) -> Outcome:
    if isinstance(answer, runtime_pb2.ServerFrame) and answer.HasField("result"):
        return to_result(answer.result)
    return _outcome(answer)


def _soon(work: Callable[[], None]) -> None:
    loop().call_soon_threadsafe(work)
