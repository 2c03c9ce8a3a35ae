"""Descriptors of this process, which other tests' runtimes, servers and channels open and close at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.waiting import until

MEMORY = "/memfd:"
"""Memory files of values, files and images: no other code opens this kind."""


def opened(kind: str = "") -> list[str]:
    """The kernel's description of each, of all or of one kind."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed since it was listed
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return [link for link in links if link.startswith(kind)]


@contextmanager
def all_closed(kind: str = "", spare: int = 0) -> Iterator[None]:
    """Fails unless the descriptors that the block opens are closed, by any thread, except for a given number."""
    before = len(opened(kind))
    yield
    until(lambda: len(opened(kind)) <= before + spare)
