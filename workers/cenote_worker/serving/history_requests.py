"""What calls mean that are about a runtime's history: patches and builds of it, tries of its slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import UnavailableError
from cenote_worker.content import Content
from cenote_worker.hosted.full_runs import not_in_full
from cenote_worker.hosted.keyed_call import RequestKey
from cenote_worker.hosted.listeners import Entry
from cenote_worker.hosted.patching import Patcher, Work
from cenote_worker.hosted.rehearsal import put_in
from cenote_worker.serving.answers import Answer
from cenote_worker.serving.calls import Call, unnamed
from cenote_worker.serving.client import Client
from cenote_worker.serving.listeners import ReplyListener
from cenote_worker.serving.patch_requests import (
    build_request,
    declarations,
    patch_request,
    rehearsal_request,
)
from cenote_worker.serving.served import ServedRuntime


@dataclass(frozen=True, slots=True)
class HistoryRequests:
    """Of one stream; for the owner of its runtime alone. The fields: see Requests."""

    served: ServedRuntime
    client: Client
    token: str
    settled: Callable[[Call, Answer], None]

    def patch(self, frame: runtime_pb2.ClientFrame, content: Content) -> Call:
        """content: of its codes, taken over."""
        request = patch_request(frame.apply, content)
        return self._worked(frame, lambda patcher: partial(patcher.patch, self.served.hosted, request))

    def build(self, frame: runtime_pb2.ClientFrame) -> Call:
        request = build_request(frame.build)
        return self._worked(frame, lambda patcher: partial(patcher.build, self.served.hosted, request))

    def _worked(self, frame: runtime_pb2.ClientFrame, work: Callable[[Patcher], Work]) -> Call:
        def run() -> None:
            call.withdraw = self.served.hosted.patches.apply(
                work(self._patcher()), self._listener(call), RequestKey(text=call.key), told, self._admission
            )

        def told(progress: runtime_pb2.ApplyProgress) -> None:
            news = runtime_pb2.ServerFrame(call=frame.call, apply_progress=progress)
            self.served.soon(self.progressed, news)

        call = Call(number=frame.call, key=frame.key or unnamed(), run=run)
        return call

    def progressed(self, news: runtime_pb2.ServerFrame) -> None:
        """On the loop. Who does not take what was told is told less: the next news of it says as much."""
        if not self.client.full:
            self.client.tell(news)

    def declaration(self, frame: runtime_pb2.ClientFrame) -> Call:
        """The same once more changes nothing, so it needs no key."""
        units = declarations(frame.declare)

        def run() -> runtime_pb2.ServerFrame:
            self._patcher().declare(self.served.hosted, units)
            return runtime_pb2.ServerFrame(call=frame.call, reply=jail_pb2.Reply(done=jail_pb2.Done()))

        return Call(number=frame.call, run=run, blocks=lambda: True)

    def put_in(self, frame: runtime_pb2.ClientFrame) -> Call:
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
        return Call(number=frame.call, run=run, at_once=True, blocks=lambda: refill.stores)

    def rehearsal(self, frame: runtime_pb2.ClientFrame, content: Content) -> Call:
        """content: its source, taken over. A client that comes back has it tried anew: there is nothing to undo."""
        request, rehearsals = rehearsal_request(frame.rehearse, content), self.served.rehearsals

        def run() -> None:
            self._own()
            rehearsals.begin(request, call.key, self._listener(call), self._admission)
            call.withdraw = withdraw

        def withdraw(*, waiting: bool = True) -> None:
            """An interrupt is for the runtime's own cells."""
            if waiting:
                rehearsals.end(call.key)

        call = Call(number=frame.call, key=frame.key or unnamed(), run=run, carries=True)
        return call

    def full_run(self, frame: runtime_pb2.ClientFrame) -> Call:
        """A client that comes back has it begun anew, as a rehearsal."""
        asked, runs = frame.run_in_full, self.served.full_runs

        def run() -> None:
            work = partial(self._patcher().run_in_full, self.served.hosted, asked.head)
            listener = self._listener(call)
            runs.begin(work, asked.number, self.client.id, call.key, listener, self._admission)
            call.withdraw = withdraw

        def withdraw(*, waiting: bool = True) -> None:
            if waiting:
                runs.cancel(call.key)

        call = Call(number=frame.call, key=frame.key or unnamed(), run=run)
        return call

    def _patcher(self) -> Patcher:
        self._own()
        if self.served.patcher is None:
            raise UnavailableError("nobody here applies patches")
        return self.served.patcher

    def _own(self) -> None:
        """Raises UsageError for authors who are attached."""
        self.client.hosted.rerunning()

    @contextmanager
    def _admission(self, code: str) -> Iterator[Entry]:
        entry = self.served.books.cell(code, self.token)
        with entry:
            yield entry

    def _listener(self, call: Call) -> ReplyListener:
        return ReplyListener(self.served.loop, partial(self.settled, call))
