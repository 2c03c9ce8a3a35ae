"""What attempts have at hand inside a jail: system calls, machine code, children. Imported there by their cells."""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cenote_security.walls.kernel.syscalls import number

REPORT: Final = "::attempt "
"""Begins the line in which an attempt reports its outcome."""

_MOST_SHOWN: Final = 4000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, kw_only=True)
class World:
    """The facts about the outside that an attacker gets: more than a real one would know.

    folder: a host folder that anybody may write to. secret: a file in it, open to all. shown: a file that a mount of
    the policy shows read-only, empty where there is none. home: of the client's user. socket: of a listener, a path.
    abstract: the name of another. tcp, udp: ports of listeners on 127.0.0.1. client, bystander: pids of processes
    outside. neighbour: pid of another jail's worker, 0 where there is none. neighbour_folder: its working directory.
    """

    folder: str
    secret: str
    shown: str
    home: str
    socket: str
    abstract: str
    tcp: int
    udp: int
    client: int
    bystander: int
    neighbour: int = 0
    neighbour_folder: str = ""


class Died(Exception):
    """A child ended by a signal. name: of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.name = signal.Signals(number).name


def call(name: str | int, *arguments: object) -> int:
    """Make a system call, by its name in the tables of the walls or by number. Raises OSError."""
    words = [word if not isinstance(word, int) else ctypes.c_long(word) for word in arguments]
    result: int = _libc.syscall(ctypes.c_long(name if isinstance(name, int) else number(name)), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return result


def machine_code(code: bytes) -> Callable[[], int]:
    """A function of this machine code, in memory that is writable and executable."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    function = ctypes.CFUNCTYPE(ctypes.c_long)(address)
    function._memory = memory  # type: ignore[attr-defined]  # lives as long as what points into it
    return function


def in_child(what: Callable[[], object]) -> None:
    """Do something in a forked child. Raises the OSError that it raised, or Died."""
    child = os.fork()
    if child == 0:
        try:
            what()
        except OSError as error:
            os._exit(error.errno or 255)
        finally:
            os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended < 0:
        raise Died(-ended)
    if ended:
        raise OSError(ended, os.strerror(ended))


def first_success(*ways: Callable[[], object]) -> object:
    """What the first way that works gives; when none does, the last one's OSError is raised."""
    failure: OSError | None = None
    for way in ways:
        try:
            return way()
        except OSError as error:
            failure = error
    assert failure is not None
    raise failure


def try_it(attempt: Callable[[World], object], world: World) -> None:
    """Run an attempt, print what became of it, and close what it left open: the next one finds its jail tidy."""
    before = _open_descriptors()
    try:
        report = {"outcome": "done", "value": repr(attempt(world))[:_MOST_SHOWN]}
    except Died as death:
        report = {"outcome": death.name}
    except OSError as error:
        report = {"outcome": errno.errorcode.get(error.errno or 0, type(error).__name__), "value": str(error)}
    except BaseException as error:  # noqa: BLE001  (whatever it was is the outcome)
        report = {"outcome": type(error).__name__, "value": str(error)[:_MOST_SHOWN]}
    with suppress(OSError):  # none may be left to look with
        for descriptor in _open_descriptors() - before:
            os.close(descriptor)
    print("\n" + REPORT + json.dumps(report))


def _open_descriptors() -> set[int]:
    """Those that are open now, without the one that it took to find out."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            os.fstat(int(name))
            found.add(int(name))
    return found
