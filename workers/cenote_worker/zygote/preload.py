"""Importing once what every jail would import: each fork then has it for the price of its page tables."""

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
"""What a library imports only when it is asked for it, and each worker asks: its tracker wants their types."""

_ENDING_SECONDS: Final = 1.0
"""A thread of an import may still be ending: matplotlib cancels a timer when it has listed the fonts."""


@dataclass(kw_only=True)
class Preloaded:
    """loaded, missing: names of modules. threaded: the module whose import started a thread; none came after it."""

    loaded: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    threaded: str | None = None


def preload(names: Iterable[str], host_proc: int) -> Preloaded:
    """Import modules in order; one that is not installed is skipped. Any other failure of an import is the caller's.

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
    """Keep the collector off everything imported so far: its marks would dirty each page once per jail."""
    gc.disable()
    gc.collect()
    gc.freeze()


def _alone(host_proc: int) -> bool:
    """Whether this process has one thread, once those that are ending have ended."""
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
    """Set `sys.path` to exactly what the jails have, before the first import that counts."""
    sys.path[:] = list(search)
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()


def use_prefix(prefix: str) -> None:
    """What Python's start-up does in a virtual environment, without carrying out the `.pth` files there."""
    sys.prefix = sys.exec_prefix = prefix
    for give_builtins in (site.setquit, site.setcopyright, site.sethelper):
        give_builtins()
