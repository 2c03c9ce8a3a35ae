"""Calls about a runtime's history: patches and builds of it, rehearsals of its slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import UnavailableError, UsageError
from cenote_security.printable import printable
from cenote_worker.execution.results import PatchedStep
from cenote_worker.history.bounds import MAX_CAUSE
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.patch_jobs import BuildRequest, Patcher, PatchRequest, Work
from cenote_worker.runtime.recorder import UsageEntry
from cenote_worker.runtime.scratch_runtime import RehearsalRequest, not_in_full, put_in
from cenote_worker.serving.calls.call_queue import Answer, QueuedCall, unnamed_key
from cenote_worker.serving.listeners import ReplyListener
from cenote_worker.serving.served_runtime import Client, ServedRuntime
from cenote_worker.transport.content import Content


def patch_request(message: runtime_pb2.Apply, content: Content) -> PatchRequest:
    """content: the codes, one for each changed step; taken over. Raises UsageError."""
    try:
        codes = [code_of(bytes(part)) for part in content.unpack()]
    finally:
        content.close()
    told = iter(codes)
    steps = tuple(
        PatchedStep(origin=step.origin, change=printable(step.change), code=next(told) if step.change else "")
        for step in message.steps
    )
    return PatchRequest(
        head=message.head,
        steps=steps,
        cause=message.cause[:MAX_CAUSE],
        atomic=not message.not_atomic,
        stop_on_failure=not message.goes_on,
        aside=message.aside,
        timeout=_seconds(message.step_seconds),
    )


def build_request(message: runtime_pb2.Build) -> BuildRequest:
    return BuildRequest(
        atomic=not message.not_atomic,
        stop_on_failure=not message.goes_on,
        aside=message.aside,
        timeout=_seconds(message.step_seconds),
        keep_failing=message.keep_failing,
        test_seconds=message.test_seconds,
    )


def declarations(message: runtime_pb2.Declare) -> tuple[ArtifactDeclared, ...]:
    """Their author is the owner: only the owner may declare."""
    return tuple(
        ArtifactDeclared(
            name=unit.name, kind=unit.kind, depends_on=tuple(unit.depends_on), dropped=unit.dropped
        )
        for unit in message.units
    )


def rehearsal_request(message: runtime_pb2.Rehearse, content: Content) -> RehearsalRequest:
    """content: the source, taken over. Raises UsageError."""
    return RehearsalRequest(
        source=one_code(content), steps=tuple(message.steps), name=message.name, seconds=message.seconds
    )


def one_code(content: Content) -> str:
    """The text of plain bytes, or of one part. Takes the content over. Raises UsageError for anything but text."""
    try:
        if content.count > 1:
            raise UsageError("the code of a cell is one piece of text")
        return code_of(content.only_part() if content.count else content.whole())
    finally:
        content.close()


def code_of(data: bytes) -> str:
    """Raises UsageError for anything but text."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise UsageError("the code of a cell is not UTF-8") from None


def _seconds(told: float) -> float | None:
    """None for an invalid duration: the default applies then."""
    return told if 0 < told < math.inf else None


@dataclass(frozen=True, slots=True)
class HistoryRequests:
    """The history requests of one stream; for the owner of its runtime only. The fields: see Requests."""

    served: ServedRuntime
    client: Client
    token: str
    settled: Callable[[QueuedCall, Answer], None]

    def patch(self, frame: runtime_pb2.ClientFrame, content: Content) -> QueuedCall:
        """content: its codes, taken over."""
        request = patch_request(frame.apply, content)
        return self._worked(frame, lambda patcher: partial(patcher.patch, self.served.hosted, request))

    def build(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        request = build_request(frame.build)
        return self._worked(frame, lambda patcher: partial(patcher.build, self.served.hosted, request))

    def _worked(self, frame: runtime_pb2.ClientFrame, work: Callable[[Patcher], Work]) -> QueuedCall:
        def run() -> None:
            call.withdraw = self.served.hosted.patches.apply(
                work(self._patcher()), self._listener(call), RequestKey(text=call.key), told, self._admission
            )

        def told(progress: runtime_pb2.ApplyProgress) -> None:
            news = runtime_pb2.ServerFrame(call=frame.call, apply_progress=progress)
            self.served.soon(self.progressed, news)

        call = QueuedCall(number=frame.call, key=frame.key or unnamed_key(), run=run)
        return call

    def progressed(self, news: runtime_pb2.ServerFrame) -> None:
        """On the loop. Skipped for a client that does not keep up: the next progress message includes this one."""
        if not self.client.full:
            self.client.tell(news)

    def declaration(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        """Needs no key: declaring the same again changes nothing."""
        units = declarations(frame.declare)

        def run() -> runtime_pb2.ServerFrame:
            self._patcher().declare(self.served.hosted, units)
            return runtime_pb2.ServerFrame(call=frame.call, reply=jail_pb2.Reply(done=jail_pb2.Done()))

        return QueuedCall(number=frame.call, run=run, blocks=lambda: True)

    def put_in(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        def run() -> runtime_pb2.ServerFrame:
            hosted = self.served.hosted
            told = make(
                runtime_pb2.PutIn,
                otherwise=hosted.begins_otherwise,
                not_in_full=not_in_full(hosted),
            )
            for step, names in put_in(hosted).items():
                make(told.at.add, step=step, names=sorted(names))
            for step, since in refill.stored().items():
                told.stored.add(step=step, since=since)
            return runtime_pb2.ServerFrame(call=frame.call, put_in=told)

        refill = self.served.hosted.rerunning().second_jail.refill
        return QueuedCall(number=frame.call, run=run, at_once=True, blocks=lambda: refill.stores)

    def rehearsal(self, frame: runtime_pb2.ClientFrame, content: Content) -> QueuedCall:
        """content: its source, taken over. A client that reconnects starts it anew: there is nothing to undo."""
        request, rehearsals = rehearsal_request(frame.rehearse, content), self.served.rehearsals

        def run() -> None:
            self._own()
            rehearsals.begin(request, call.key, self._listener(call), self._admission)
            call.withdraw = withdraw

        def withdraw(*, waiting: bool = True) -> None:
            """Ignores interrupts, which are for the runtime's own cells."""
            if waiting:
                rehearsals.end(call.key)

        call = QueuedCall(number=frame.call, key=frame.key or unnamed_key(), run=run, carries=True)
        return call

    def full_run(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        """A client that reconnects starts it anew, as with a rehearsal."""
        asked, runs = frame.run_in_full, self.served.full_runs

        def run() -> None:
            work = partial(self._patcher().run_in_full, self.served.hosted, asked.head)
            listener = self._listener(call)
            runs.begin(work, asked.number, self.client.id, call.key, listener, self._admission)
            call.withdraw = withdraw

        def withdraw(*, waiting: bool = True) -> None:
            if waiting:
                runs.cancel(call.key)

        call = QueuedCall(number=frame.call, key=frame.key or unnamed_key(), run=run)
        return call

    def _patcher(self) -> Patcher:
        self._own()
        if self.served.patcher is None:
            raise UnavailableError("patches are not applied here")
        return self.served.patcher

    def _own(self) -> None:
        """Raises UsageError for attached authors."""
        self.client.hosted.rerunning()

    @contextmanager
    def _admission(self, code: str) -> Iterator[UsageEntry]:
        entry = self.served.books.cell(code, self.token)
        with entry:
            yield entry

    def _listener(self, call: QueuedCall) -> ReplyListener:
        return ReplyListener(self.served.loop, partial(self.settled, call))
