"""Descriptors of this process, which other tests' runtimes, servers and channels open and close beside a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.waiting import until

MEMORY = "/memfd:"
"""What values, files and images travel in: of this kind nobody else opens one by himself."""


def opened(kind: str = "") -> list[str]:
    """What the kernel shows of each, of all or of one kind."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed since it was listed
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return [link for link in links if link.startswith(kind)]


@contextmanager
def all_closed(kind: str = "", spare: int = 0) -> Iterator[None]:
    """Fails unless what the block opens is closed, by whichever thread, but for a few to spare."""
    before = len(opened(kind))
    yield
    until(lambda: len(opened(kind)) <= before + spare)
