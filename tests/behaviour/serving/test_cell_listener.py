"""The listener of a cell: positions, the window, and what remains of them when the connection breaks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.execution.results import StreamName
from cenote_worker.serving.limits import WINDOW
from cenote_worker.serving.listeners import MERGED, CellListener


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def listening(loop: asyncio.AbstractEventLoop, heard: int = 0) -> CellListener:
    return CellListener(loop, lambda: None, lambda outcome: None, heard)


def test_positions(loop: asyncio.AbstractEventLoop) -> None:
    """They continue from the client's position, over both streams."""
    listener = listening(loop, heard=10)
    listener.output("stdout", "abc")
    listener.output("stderr", "d")
    assert [("abc", 13, False), ("d", 14, True)] == [
        (one.text, one.position, one.is_stderr) for one in listener.take()
    ]
    assert [] == listener.take()


def test_a_gap(loop: asyncio.AbstractEventLoop) -> None:
    """Output that is no longer stored shows as a jump of the position."""
    listener = listening(loop, heard=10)
    listener.missed(5)
    listener.output("stdout", "abc")
    assert [18] == [one.position for one in listener.take()]


def test_the_window(loop: asyncio.AbstractEventLoop) -> None:
    """At its limit the jail continues; one character past it, it waits until half of it was acknowledged."""
    listener = listening(loop)
    assert listener.output("stdout", "x" * WINDOW)
    assert not listener.output("stdout", "x")
    listener.take()
    assert not listener.hear(WINDOW // 2)
    assert listener.hear(WINDOW // 2 + 1)
    assert not listener.hear(WINDOW)
    assert listener.output("stdout", "x" * (WINDOW - 1))


def test_hearing_what_was_not_sent(loop: asyncio.AbstractEventLoop) -> None:
    """It opens no window."""
    listener = listening(loop)
    listener.output("stdout", "x" * (WINDOW + 1))
    assert not listener.hear(10 * WINDOW)


def test_a_muted_listener(loop: asyncio.AbstractEventLoop) -> None:
    """It stores nothing, makes no jail wait, and reports whether one did."""
    listener = listening(loop)
    listener.output("stdout", "x" * (WINDOW + 1))
    assert listener.mute()
    assert listener.output("stdout", "x" * (WINDOW + 1))
    assert ([], False) == (listener.take(), listener.mute())


def test_a_loop_that_has_ended(loop: asyncio.AbstractEventLoop) -> None:
    """The reactor's thread gets no exception of another component."""
    listener = listening(loop)
    loop.close()
    listener.output("stdout", "x")
    listener.done(ValueError())


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(max_size=20)), max_size=30))
def test_what_is_merged(printed: list[tuple[StreamName, str]]) -> None:
    """Adjacent output of one stream is merged; nothing is lost or reordered."""
    loop = asyncio.new_event_loop()
    listener = listening(loop)
    for stream, text in printed:
        listener.output(stream, text)
    taken = [("stderr" if one.is_stderr else "stdout", one.text) for one in listener.take()]
    assert "".join(text for _, text in printed) == "".join(text for _, text in taken)
    for stream in ("stdout", "stderr"):
        before = "".join(text for where, text in printed if where == stream)
        assert before == "".join(text for where, text in taken if where == stream)
    assert all(one[0] != other[0] for one, other in itertools.pairwise(taken))
    loop.close()


def test_merging_has_a_limit(loop: asyncio.AbstractEventLoop) -> None:
    """A frame stays short."""
    listener = listening(loop)
    for _ in range(3):
        listener.output("stdout", "x" * (MERGED // 2))
    assert [MERGED, MERGED // 2] == [len(one.text) for one in listener.take()]
