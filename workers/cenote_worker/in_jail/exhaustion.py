"""Errors that mean a limit of the jail: which one, and how much it is."""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

from cenote_worker.in_jail.bounded import bounded_str
from cenote_worker.in_jail.frames import steps_of
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_MIB: Final = 2**20
_COMPILED: Final = 500
"""Bytes that the syntax tree of a long list of small numbers has for one character of it."""
_WARDEN: Final = 1
_STARTERS: Final = frozenset({"fork", "forkpty", "_fork_exec", "posix_spawn", "posix_spawnp"})
"""Names in the code of whoever starts a process: the error itself is that of any call that would have to wait."""

_NO_THREAD: Final = "can't start new thread"

_errno_of = OSError.__dict__["errno"].__get__


def limit_reached(error: BaseException) -> str:
    """`memory`, `disk` or `processes`; empty for an error that says nothing of a limit."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        number = _errno_of(error)
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return "disk"
        return "processes" if number == errno.EAGAIN and _starts_process(error) else ""
    if isinstance(error, RuntimeError) and _NO_THREAD in bounded_str(error, 200):
        return "processes"
    return ""


def limit_hint(error: BaseException, reason: str) -> str:
    """The limit in words; empty when there is none to name."""
    if reason == "memory":
        most = resource.getrlimit(resource.RLIMIT_DATA)[0]
        return f"the memory limit is {most // _MIB} MiB, what the runtime began with included"
    if reason == "processes":
        most = resource.getrlimit(resource.RLIMIT_NPROC)[0] - _WARDEN
        return f"the limit is {most} processes and threads at once"
    if isinstance(error, OSError) and _errno_of(error) == errno.EFBIG:
        return f"the limit of one file is {resource.getrlimit(resource.RLIMIT_FSIZE)[0] // _MIB} MiB"
    return _disk_hint()


def compiling_hint(size: int) -> str:
    """For a MemoryError of the compiler. size: characters of the cell."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[0]
    limit = f"the memory limit is {most // _MIB} MiB"
    if size * _COMPILED < most:  # the parser raises the same error when its own stack is full
        return f"it is nested too deeply for Python to compile, or memory is short: {limit}"
    return (
        f"{limit}, and Python takes up to {_COMPILED} times the size of code to compile it, which is "
        f"{size / 1e6:.3g} MB here; put data into files, or have them injected, and read them in cells"
    )


def _starts_process(error: BaseException) -> bool:
    steps = steps_of(error)
    return bool(steps) and not _STARTERS.isdisjoint(steps[-1].frame.f_code.co_names)


def _disk_hint() -> str:
    found = os.statvfs(".")
    if found.f_ffree == 0 and found.f_files > 0:
        return f"the limit is {found.f_files} files and folders, in the working directory and /tmp together"
    size = found.f_blocks * found.f_frsize
    used = size - found.f_bfree * found.f_frsize
    return f"used {used // _MIB} MiB of {size // _MIB} MiB, in the working directory and /tmp together"
