"""The history of a runtime on a platform: a copy of it, and changes and full runs that the platform makes.

Each event travels once. A change is sent whole, carried out there, and followed from here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from cenote.runtime.core.backend import Withdraw
from cenote.runtime.core.listeners import BlockingListener
from cenote.runtime.remote import calls
from cenote.runtime.remote.background import background
from cenote.runtime.remote.calls import Answer, PendingCall, Request
from cenote.runtime.remote.session import RuntimeSession
from cenote.runtime.replay.fresh_runs import Ran
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import JailError, RuntimeClosedError
from cenote_security.printable import printable
from cenote_worker.execution.results import Built, Patched, RanInFull
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.history.history import History
from cenote_worker.history.messages import to_event
from cenote_worker.history.step import START
from cenote_worker.runtime.jail_requests import WorkdirRequest
from cenote_worker.runtime.patch_jobs import BuildRequest, PatchRequest, PatchWatch
from cenote_worker.runtime.scratch_runtime import RehearsalRequest
from cenote_worker.supervisor.requests import Listener, Outcome

Ask = Callable[[runtime_pb2.ClientFrame], runtime_pb2.ServerFrame]
"""Blocks until the answer is there."""


class HistoryCopy:
    """Of one runtime. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._id = ""
        self._history = History()

    def read(self, ask: Ask) -> History:
        """All that has happened by now. Raises what `ask` raises."""
        more = True
        while more:
            question = runtime_pb2.HistoryQuestion(after=self._history.size)
            answer = ask(runtime_pb2.ClientFrame(history=question)).history
            with self._lock:
                more = self._take(answer, question.after)
        return self._history

    def _take(self, answer: runtime_pb2.History, after: int) -> bool:
        """Whether there is more to be read."""
        if answer.id != self._id:  # the first, or of a runtime that began anew on another machine
            self._id, self._history = answer.id, History(id=answer.id)
            if after:
                return True
        if after == self._history.size:  # else another thread has read them
            self._history.read(map(to_event, answer.events))
        return answer.more


class Asking(Protocol):
    """A runtime that was started, as questions and requests are sent to it."""

    def asked(self, frame: runtime_pb2.ClientFrame, what: str, *, changes: bool) -> runtime_pb2.ServerFrame:
        """The one frame that is the answer. what: for the error when none comes. Blocks; raises what came instead."""

    def request(self, request: Request, listener: Listener) -> Withdraw:
        """Queues it. The listener hears of it in any case."""


class RemoteFullRun:
    """See InspectedRuntime. number: that this client has given it. There until it is ended."""

    def __init__(self, asking: Asking, number: int) -> None:
        self._asking = asking
        self._number = number
        self._history = HistoryCopy()

    def history(self) -> History:
        """Its own. May block. Raises UnavailableError when it has ended."""

        def ask(frame: runtime_pb2.ClientFrame) -> runtime_pb2.ServerFrame:
            frame.beside = self._number
            return self._asking.asked(frame, "tell the history of a full run", changes=False)

        return self._history.read(ask)

    def describe(self, listener: Listener) -> None:
        self._ask(calls.description(), listener)

    def fetch(self, name: str, listener: Listener, *, opaque: bool) -> None:
        self._ask(calls.fetch(name, opaque=opaque), listener)

    def file(self, ask: WorkdirRequest, listener: Listener) -> None:
        self._ask(calls.file(ask), listener)

    def resume(self) -> None:
        """Nothing is printed there."""

    def _ask(self, request: Request, listener: Listener) -> None:
        request[0].beside = self._number
        self._asking.request(request, listener)


_LOOK_EVERY: Final = 0.2
"""Seconds between two looks whether it was cancelled, while a step runs."""

MAX_ANSWER: Final = 64 * 2**20
"""Bytes: names and numbers of a line that is longer than any."""

_News = runtime_pb2.ApplyProgress | Answer


class RemoteHarness:
    """See HarnessClient. session: of a runtime that was started. under_way: calls that an interrupt is for."""

    def __init__(self, session: RuntimeSession, under_way: set[PendingCall], asking: Asking) -> None:
        self._session = session
        self._under_way = under_way
        self._asking = asking
        self._full_runs = 0
        """That are looked at just now."""

    def apply(self, request: PatchRequest, watch: PatchWatch) -> Patched:
        outcome = self._carried_out(calls.patch(request), watch)
        if not isinstance(outcome, Patched):
            raise JailError("the platform did not say what became of the patch")
        return outcome

    def build(self, request: BuildRequest, watch: PatchWatch) -> Built:
        outcome = self._carried_out(calls.build(request), watch)
        if not isinstance(outcome, Built):
            raise JailError("the platform did not say what became of the build")
        return outcome

    def declare(self, units: Sequence[ArtifactDeclared]) -> None:
        self._asking.asked(calls.declaration(units), "declare artifacts", changes=True)

    def put_in(self) -> Mapping[int, frozenset[str]]:
        return {each.step: frozenset(each.names) for each in self._put_in().at}

    def begins_otherwise(self) -> str:
        return printable(self._put_in().otherwise)

    def stored(self) -> Mapping[int, int]:
        put_in = self._put_in()
        found = {each.step: each.since for each in put_in.stored}
        return found if put_in.otherwise else {**found, START: START}

    def not_in_full(self) -> str:
        return printable(self._put_in().not_in_full)

    @contextmanager
    def in_full(self, head: int, cancelled: Callable[[], bool]) -> Iterator[Ran]:
        watch = PatchWatch(progress=lambda _: None, cancelled=cancelled)
        self._full_runs = number = self._full_runs + 1
        try:
            outcome = self._carried_out(calls.full_run(head, number), watch)
            if not isinstance(outcome, RanInFull):
                raise JailError("the platform did not say what became of a full run")
            beside = RemoteFullRun(self._asking, number)
            tree = beside.history().tree
            yield beside, [tree.get(number) for number in outcome.steps if number in tree]
            beside.history()  # which raises if it has ended meanwhile: then nothing is known
        finally:
            self._full_runs -= 1
            with suppress(RuntimeClosedError):  # it ends with its client
                background().post(self._session.say, calls.end_of_full_run(number))

    def _put_in(self) -> runtime_pb2.PutIn:
        frame = runtime_pb2.ClientFrame(put_in=runtime_pb2.PutInQuestion())
        return self._asking.asked(frame, "say what was put in", changes=False).put_in

    def rehearse(self, request: RehearsalRequest) -> Outcome:
        listener = BlockingListener()
        withdraw = self._asking.request(calls.rehearsal(request), listener)
        try:
            return listener.wait(lambda: None)
        except BaseException:
            withdraw()
            raise

    def _carried_out(self, request: Request, watch: PatchWatch) -> Outcome:
        """What came of a request that is followed. Raises what came instead."""
        news: SimpleQueue[_News] = SimpleQueue()
        call = self._call(request, news.put)
        try:
            outcome = calls.outcome_of(self._followed(call, news, watch))
        except BaseException:
            self._give_up(call, news)
            raise
        finally:
            self._under_way.discard(call)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _call(self, request: Request, heard: Callable[[_News], None]) -> PendingCall:
        frame, content = request
        call = PendingCall(
            frame=frame, settle=heard, limit=MAX_ANSWER, changes=True, content=content, progress=heard
        )
        self._under_way.add(call)
        try:
            background().post(self._session.call, call)
        except RuntimeClosedError:
            self._under_way.discard(call)
            call.close()
            raise
        return call

    def _followed(self, call: PendingCall, news: SimpleQueue[_News], watch: PatchWatch) -> Answer:
        """The answer; the watch is told and asked on this thread meanwhile."""
        cancelled = False
        while True:
            if not cancelled and watch.cancelled():
                cancelled = True
                self._say(call, runtime_pb2.ClientFrame(cancel=runtime_pb2.Cancel()))
            try:
                item = news.get(timeout=_LOOK_EVERY)
            except Empty:
                continue
            if not isinstance(item, runtime_pb2.ApplyProgress):
                return item
            watch.progress(item)

    def _give_up(self, call: PendingCall, news: SimpleQueue[_News]) -> None:
        """The caller is leaving: the step that runs is stopped, and all is put back first."""
        self._say(call, runtime_pb2.ClientFrame(cancel=runtime_pb2.Cancel(now=True)))
        while isinstance(news.get(), runtime_pb2.ApplyProgress):
            pass

    def _say(self, call: PendingCall, frame: runtime_pb2.ClientFrame) -> None:
        def say() -> None:  # on the loop, where the call has its number
            frame.call = call.number
            self._session.say(frame)

        with suppress(RuntimeClosedError):  # the process ends, and the line with it
            background().post(say)
