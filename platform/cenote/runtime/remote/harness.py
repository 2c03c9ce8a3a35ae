"""The history of a runtime on a platform: what changes it is sent whole, carried out there, followed from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Final

from cenote.runtime.full_runs import Ran
from cenote.runtime.listeners import BlockingListener
from cenote.runtime.remote import frames
from cenote.runtime.remote.background import background
from cenote.runtime.remote.call import Answer, Call
from cenote.runtime.remote.frames import Request
from cenote.runtime.remote.full_run import Asking, RemoteFullRun
from cenote.runtime.remote.session import Session
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import JailError, RuntimeClosedError
from cenote_security.printable import printable
from cenote_worker.history.events import Declared
from cenote_worker.history.step import START
from cenote_worker.hosted.patching import BuildRequest, PatchRequest, PatchWatch
from cenote_worker.hosted.rehearsal import RehearsalRequest
from cenote_worker.results import Built, Patched, RanInFull
from cenote_worker.supervisor.requests import Outcome

_LOOK_EVERY: Final = 0.2
"""Seconds between two looks whether it was cancelled, while a step runs."""

MAX_ANSWER: Final = 64 * 2**20
"""Bytes: names and numbers of a line that is longer than any."""

_News = runtime_pb2.ApplyProgress | Answer


class RemoteHarness:
    """See HarnessLine. session: of a runtime that was started. under_way: calls that an interrupt is for."""

    def __init__(self, session: Session, under_way: set[Call], asking: Asking) -> None:
        self._session = session
        self._under_way = under_way
        self._asking = asking
        self._full_runs = 0
        """That are looked at just now."""

    def apply(self, request: PatchRequest, watch: PatchWatch) -> Patched:
        outcome = self._carried_out(frames.patch(request), watch)
        if not isinstance(outcome, Patched):
            raise JailError("the platform did not say what became of the patch")
        return outcome

    def build(self, request: BuildRequest, watch: PatchWatch) -> Built:
        outcome = self._carried_out(frames.build(request), watch)
        if not isinstance(outcome, Built):
            raise JailError("the platform did not say what became of the build")
        return outcome

    def declare(self, units: Sequence[Declared]) -> None:
        self._asking.asked(frames.declaration(units), "declare artifacts", changes=True)

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
            outcome = self._carried_out(frames.full_run(head, number), watch)
            if not isinstance(outcome, RanInFull):
                raise JailError("the platform did not say what became of a full run")
            beside = RemoteFullRun(self._asking, number)
            tree = beside.history().tree
            yield beside, [tree.get(number) for number in outcome.steps if number in tree]
            beside.history()  # which raises if it has ended meanwhile: then nothing is known
        finally:
            self._full_runs -= 1
            with suppress(RuntimeClosedError):  # it ends with its client
                background().post(self._session.say, frames.end_of_full_run(number))

    def _put_in(self) -> runtime_pb2.PutIn:
        frame = runtime_pb2.ClientFrame(put_in=runtime_pb2.PutInQuestion())
        return self._asking.asked(frame, "say what was put in", changes=False).put_in

    def rehearse(self, request: RehearsalRequest) -> Outcome:
        listener = BlockingListener()
        withdraw = self._asking.request(frames.rehearsal(request), listener)
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
            outcome = frames.outcome_of(self._followed(call, news, watch))
        except BaseException:
            self._give_up(call, news)
            raise
        finally:
            self._under_way.discard(call)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _call(self, request: Request, heard: Callable[[_News], None]) -> Call:
        frame, content = request
        call = Call(
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

    def _followed(self, call: Call, news: SimpleQueue[_News], watch: PatchWatch) -> Answer:
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

    def _give_up(self, call: Call, news: SimpleQueue[_News]) -> None:
        """Whoever waits is leaving: the step that runs is stopped, and all is put back first."""
        self._say(call, runtime_pb2.ClientFrame(cancel=runtime_pb2.Cancel(now=True)))
        while isinstance(news.get(), runtime_pb2.ApplyProgress):
            pass

    def _say(self, call: Call, frame: runtime_pb2.ClientFrame) -> None:
        def say() -> None:  # on the loop, where the call has its number
            frame.call = call.number
            self._session.say(frame)

        with suppress(RuntimeClosedError):  # the process ends, and the line with it
            background().post(say)
