"""What samples of its pages tell of a process and the copy that it was forked into."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from cenote_worker.zygote.sharing import Sharing, sharing

PAGE = mmap.PAGESIZE
HELD = 16_384
"""Pages of a large area."""


@contextmanager
def forked() -> Iterator[int]:
    """The pid of a copy of this process that only waits."""
    copy = os.fork()
    if copy == 0:
        signal.pause()
        os._exit(0)
    try:
        yield copy
    finally:
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)


def filled() -> mmap.mmap:
    area = mmap.mmap(-1, HELD * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.write(b"x" * (HELD * PAGE))
    return area


def test_pages_that_were_written_to_are_counted() -> None:
    """To the nearest hundreds; what is left of the same area could be copied too."""
    with filled() as area, forked() as copy:
        before = sharing(os.getpid(), copy)
        for page in range(HELD // 2):
            area[page * PAGE] = 0
        after = sharing(os.getpid(), copy)
    assert abs(after.copied - before.copied - HELD // 2) < HELD // 8
    assert after.exposed > HELD // 2 - HELD // 8


def test_memory_that_the_copy_has_not_is_not_looked_at() -> None:
    """Filling an array of its own costs a cell nothing."""
    with forked() as copy:
        before = sharing(os.getpid(), copy)
        with filled():
            assert sharing(os.getpid(), copy).copied - before.copied < HELD // 8


def test_a_process_that_is_gone() -> None:
    """Nothing is known of it, so that nothing is given up."""
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    assert Sharing() == sharing(os.getpid(), gone)
    assert Sharing() == sharing(gone, os.getpid())
