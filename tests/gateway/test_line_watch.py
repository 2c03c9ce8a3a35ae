"""A connection on which nothing comes is cut, whatever that takes."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest
from tests.waiting import until

from cenote.gateway import line_watch
from cenote.gateway.line_watch import LineWatch


@pytest.fixture
def watch() -> Iterator[LineWatch]:
    watch = LineWatch(0.04)
    yield watch
    watch.close()


def cut(watch: LineWatch) -> bool:
    """Whether who waits on a line for what does not come is told that it has ended."""
    near, far = socket.socketpair()
    with near, far, watch.over(near.fileno()):
        near.settimeout(10)
        return near.recv(1) == b""


def test_who_waits_finds_that_the_line_has_ended(watch: LineWatch) -> None:
    assert cut(watch)
    assert cut(watch)


def test_a_line_that_cannot_be_cut_at_once(watch: LineWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this process has no descriptor left, it is cut when it has one."""
    dup, tried = os.dup, []

    def no_descriptors(descriptor: int) -> int:
        tried.append(descriptor)
        if len(tried) == 1:
            raise OSError(errno.EMFILE, "too many open files")
        return dup(descriptor)

    monkeypatch.setattr(line_watch.os, "dup", no_descriptors)
    assert cut(watch)
    assert 2 == len(tried)


def test_a_line_that_has_ended_by_itself(watch: LineWatch) -> None:
    """It is no hindrance to the watching of the next one."""
    with socket.socket() as nowhere, watch.over(nowhere.fileno()):
        until(lambda: watch._waiting is None)
    assert cut(watch)
