"""The order of waiting requests, without a jail."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from cenote_proto.v1 import jail_pb2
from cenote_worker.execution.results import StreamName
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import AuthorSession, JailRequest, Outcome
from cenote_worker.supervisor.running_request import MOST_OVERTAKEN, enqueue, withdrawn

ANA, BEN, EVA = (AuthorSession(author=name) for name in ("ana", "ben", "eva"))
QUESTIONS = (RequestKind.DESCRIBE, RequestKind.FETCH, RequestKind.LOOK_UP_FILES, RequestKind.READ_FILE)


class Nobody:
    """A Listener that has gone."""

    def output(self, stream: StreamName, text: str) -> bool:
        return True

    def done(self, outcome: Outcome) -> None: ...


def request(ask: RequestKind, seat: AuthorSession) -> JailRequest:
    return JailRequest(ask, jail_pb2.Request(), Nobody(), seat=seat)


def queue(requests: Iterable[JailRequest]) -> deque[JailRequest]:
    waiting: deque[JailRequest] = deque()
    for one in requests:
        enqueue(waiting, one)
    return waiting


REQUESTS = st.lists(
    st.builds(
        request,
        st.sampled_from(sorted(RequestKind, key=lambda ask: ask.value)),
        st.sampled_from([ANA, BEN, EVA]),
    )
)


@given(REQUESTS)
def test_what_one_author_asks_keeps_its_order(requests: list[JailRequest]) -> None:
    """In any order of overtaking, each author's requests stay in their own order."""
    waiting = queue(requests)
    for seat in (ANA, BEN, EVA):
        assert [r for r in requests if r.seat is seat] == [r for r in waiting if r.seat is seat]


@given(REQUESTS)
def test_what_changes_something_keeps_its_order(requests: list[JailRequest]) -> None:
    """Cells, injections and deletions of all authors run in order of arrival."""
    waiting = queue(requests)
    changes = [one for one in requests if one.ask not in QUESTIONS]
    assert changes == [one for one in waiting if one.ask not in QUESTIONS]


@given(REQUESTS)
def test_nothing_is_lost(requests: list[JailRequest]) -> None:
    """Each request waits once, until its turn has ended."""
    waiting = queue(requests)
    assert {id(one) for one in requests} == {id(one) for one in waiting}
    gone = withdrawn(waiting, ANA)
    assert all(one.seat is ANA for one in gone)
    assert len(requests) == len(gone) + len(waiting)
    assert not any(one.seat is ANA for one in waiting)


def test_a_cell_is_overtaken_so_often_and_no_more() -> None:
    """At the limit a question goes before it, one past the limit after it."""
    cell = request(RequestKind.EXECUTE, ANA)
    questions = [request(RequestKind.DESCRIBE, BEN) for _ in range(MOST_OVERTAKEN + 1)]
    assert [*questions[:MOST_OVERTAKEN], cell, questions[-1]] == list(queue([cell, *questions]))
