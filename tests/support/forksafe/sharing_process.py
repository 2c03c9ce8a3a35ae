"""Compares its own pages with those of a copy of it, in a process that does nothing else; prints the result.

    python sharing_process.py rewrite | fill

`rewrite` writes to half of an area that the copy has too, `fill` fills one that only this process has.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from cenote_worker.zygote.warden.snapshot_cost_monitor import sharing

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


def main(what: str) -> None:
    held = filled() if what == "rewrite" else None
    with forked() as copy:
        before = sharing(os.getpid(), copy)
        if held is None:
            held = filled()
        else:
            for page in range(HELD // 2):
                held[page * PAGE] = 0
        print(json.dumps([asdict(before), asdict(sharing(os.getpid(), copy))]))


if __name__ == "__main__":
    main(sys.argv[1])
