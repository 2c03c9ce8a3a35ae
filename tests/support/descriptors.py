"""Descriptors of this process, which other tests' runtimes, servers and channels open and close at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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


def locks_on(*paths: Path) -> list[list[str]]:
    """The kernel's lines about the locks of `fcntl` that this process holds on these files, in any open one."""
    found = {path: list[str]() for path in paths}
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            opened = Path(os.readlink(f"/proc/self/fd/{name}"))
            if opened in found and not found[opened]:
                lines = Path(f"/proc/self/fdinfo/{name}").read_text().splitlines()
                found[opened] = sorted(line for line in lines if line.startswith("lock:") and "POSIX" in line)
    return list(found.values())


@contextmanager
def all_closed(kind: str = "", spare: int = 0) -> Iterator[None]:
    """Fails unless the descriptors that the block opens are closed, by any thread, except for a given number."""
    before = len(opened(kind))
    yield
    until(lambda: len(opened(kind)) <= before + spare)
