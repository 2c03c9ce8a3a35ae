"""Which processes of the jail run, as this one sees them. A frozen copy is known by its name."""

from __future__ import annotations

import os
from typing import Final

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_FROZEN: Final = b"frozen copy"
"""Up to 15 bytes, as the kernel keeps them."""

_PROCESSES: Final = "/proc"
_listdir, _getpid = os.listdir, os.getpid
_open, _read, _close = os.open, os.read, os.close


def become_frozen() -> bytes:
    """Takes the name of a frozen copy. Returns the former one."""
    former = libc.process_name()
    libc.prctl(libc.PR_SET_NAME, _FROZEN)
    return former


def run_as(name: bytes) -> None:
    """Takes a name: that of a process that runs."""
    libc.prctl(libc.PR_SET_NAME, name)


def is_another_process_running() -> bool:
    """Whether there is a process beside this one, other than frozen copies and the warden, which opens no files of
    the program's. A process that has ended and was not waited for counts; so does one of which nothing is known.
    """
    try:
        others = [each for each in _listdir(_PROCESSES) if each.isdigit() and int(each) != _getpid()]
    except OSError:
        return True
    return any(_name_of(each) not in (_FROZEN, None) for each in others)


def _name_of(process: str) -> bytes | None:
    """Empty if it is unknown; None if the process has ended."""
    try:
        file = _open(f"{_PROCESSES}/{process}/comm", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return b""
    try:
        return _read(file, 64).removesuffix(b"\n")
    except ProcessLookupError:
        return None
    except OSError:
        return b""
    finally:
        _close(file)
