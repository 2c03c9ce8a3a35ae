"""Tests of `cenote.runtime.remote.history`, with a history that grows by one event at a time."""

from __future__ import annotations

from cenote.runtime.remote.history import HistoryCopy
from cenote_proto.v1 import runtime_pb2
from cenote_worker.history.history import History
from cenote_worker.history.messages import from_event
from cenote_worker.history.step import StepRecord


class Teller:
    """Answers as a platform does. asked: the number of events that the client had at each request."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.asked: list[int] = []

    def __call__(self, frame: runtime_pb2.ClientFrame) -> runtime_pb2.ServerFrame:
        after = frame.history.after
        self.asked.append(after)
        told = runtime_pb2.History(id=self.history.id, more=after + 1 < self.history.size)
        if after < self.history.size:
            told.events.append(from_event(self.history.event(after)))
        return runtime_pb2.ServerFrame(history=told)


def history(*codes: str) -> History:
    made = History()
    for number, code in enumerate(codes, 1):
        made.ended(StepRecord(number=number, code=code, started=0.0))
    return made


def codes(history: History) -> list[str]:
    tree = history.tree
    return [tree.get(number).code for number in range(1, tree.last + 1)]


def test_each_event_is_asked_for_once() -> None:
    """The copy is the same object, with the new events appended."""
    teller, copy = Teller(history("a", "b")), HistoryCopy()
    first = copy.read(teller)
    teller.history.ended(StepRecord(number=3, code="c", started=0.0))
    assert first is copy.read(teller)
    assert (["a", "b", "c"], [0, 1, 2]) == (codes(first), teller.asked)


def test_a_history_that_began_anew_is_read_from_its_start() -> None:
    """A runtime that was restored on another machine has another history, whose events have other positions."""
    teller, copy = Teller(history("a", "b")), HistoryCopy()
    copy.read(teller)
    teller.history = history("x", "y", "z")
    assert ["x", "y", "z"] == codes(copy.read(teller))
    assert [0, 1, 2, 0, 1, 2] == teller.asked


def test_what_another_thread_has_read_meanwhile_is_not_read_twice() -> None:
    """Both request the same events; the later answer is dropped."""
    teller, copy = Teller(history("a", "b")), HistoryCopy()

    def ask(frame: runtime_pb2.ClientFrame) -> runtime_pb2.ServerFrame:
        answer = teller(frame)
        if frame.history.after == 0:
            copy.read(teller)
        return answer

    assert ["a", "b"] == codes(copy.read(ask))
