"""Imports once what every jail would import: each fork then has it for the price of its page tables."""

from __future__ import annotations

import gc
import importlib
import os
import site
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cenote_worker.process.patient_wait import PatientWait

_PARTS: Final = {"numpy": ("numpy.random",)}
"""Modules that a library imports only on demand, and that each worker's tracker needs for their types."""

_ENDING_SECONDS: Final = 1.0
"""Time for a thread of an import to end: matplotlib cancels a timer when it has listed the fonts."""


@dataclass(kw_only=True)
class Preloaded:
    """loaded, missing: names of modules. threaded: the module whose import started a thread; the last one loaded."""

    loaded: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    threaded: str | None = None


def preload(names: Iterable[str], host_proc: int) -> Preloaded:
    """Imports modules in order; one that is not installed is skipped. Any other failure of an import is raised.

    The environment must tell libraries to start no threads already: see `environment.scrubbed`.
    host_proc: a descriptor of `/proc`, to count this process's threads.
    """
    result = Preloaded()
    for name in names:
        try:
            for part in (name, *_PARTS.get(name, ())):
                importlib.import_module(part)
        except ModuleNotFoundError:
            result.missing.append(name)
            continue
        result.loaded.append(name)
        if not _alone(host_proc):
            result.threaded = name
            break
    return result


def settle_memory() -> None:
    """Excludes everything imported so far from garbage collection: its marks would dirty each page in each jail."""
    gc.disable()
    gc.collect()
    gc.freeze()


def _alone(host_proc: int) -> bool:
    """Whether this process has one thread, after waiting for ending threads."""
    wait = PatientWait(_ENDING_SECONDS)
    while thread_count(host_proc) > 1:
        if not wait.piece():
            return False
        time.sleep(0.005)
    return True


def thread_count(host_proc: int) -> int:
    descriptor = os.open("self/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=host_proc)
    try:
        return len(os.listdir(descriptor))  # noqa: PTH208  (a descriptor)
    finally:
        os.close(descriptor)


def use_search_path(search: Iterable[str]) -> None:
    """Sets `sys.path` to exactly that of the jails, before the first import that counts."""
    sys.path[:] = list(search)
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()


def use_prefix(prefix: str) -> None:
    """Does what Python's start-up does in a virtual environment, without executing its `.pth` files."""
    sys.prefix = sys.exec_prefix = prefix
    for give_builtins in (site.setquit, site.setcopyright, site.sethelper):
        give_builtins()
