"""The stored state for a successor of a runtime's host includes the namespace of each injection."""

from __future__ import annotations

import os

import pytest

from cenote_worker.runtime.injection import Injection, from_record, to_record
from cenote_worker.supervisor.requests import OWNER, AuthorSession
from cenote_worker.transport.content import Content


@pytest.mark.parametrize(
    "seat", [OWNER, AuthorSession(author="ana"), AuthorSession(author="ana", private=True)]
)
def test_a_kept_injection_keeps_its_seat(seat: AuthorSession) -> None:
    """The next process injects it into the namespace that its author chose."""
    given = Injection(values=Content.pack([b"pickled"]), replaces="x", names=("x",), seat=seat, client="c")
    record, descriptors, content = to_record(given)
    kept = from_record(record, [os.dup(descriptor) for descriptor in descriptors], number=3)
    content.close()
    assert (seat.author, seat.private) == (kept.seat.author, kept.seat.private)
    assert (seat is OWNER) == (kept.seat is OWNER)
    assert kept.supersedes(given)
    assert "c" == kept.client
