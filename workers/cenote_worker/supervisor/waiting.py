"""Requests that wait for a jail, in the order in which it will get them. No I/O, no clock, no lock.

First come, first served; but a question, which changes nothing, does not wait for the cells of other authors.
"""

from __future__ import annotations

from collections import deque

from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import JailRequest, Seat

MOST_OVERTAKEN = 16
"""Questions of others that a waiting cell lets pass, so that no number of them keeps it from its turn."""

_QUESTIONS = (Ask.DESCRIBE, Ask.FETCH, Ask.LOOK_UP_FILES, Ask.READ_FILE)


def enqueue(waiting: deque[JailRequest], request: JailRequest) -> None:
    """Puts a request in its place."""
    place = len(waiting)
    if place and request.ask in _QUESTIONS:
        while place and _lets_pass(waiting[place - 1], request):
            place -= 1
            waiting[place].overtaken += 1
    waiting.insert(place, request)


def withdrawn(waiting: deque[JailRequest], seat: Seat) -> list[JailRequest]:
    """Removes the requests of one seat, and gives them."""
    gone = [request for request in waiting if request.seat is seat]
    for request in gone:
        waiting.remove(request)
    return gone


def _lets_pass(waiting: JailRequest, question: JailRequest) -> bool:
    return (
        waiting.ask is Ask.EXECUTE
        and waiting.seat is not question.seat
        and waiting.overtaken < MOST_OVERTAKEN
    )
