"""The threads that the kernel sees in this process, and the library that each of them runs.

A thread's name says little: most pools keep the name of the program. But a thread that waits has the way back into
its library on its stack, and the kernel says where that is (`/proc/self/task/<id>/syscall`). The first return
address there that is not the C library's or the C++ runtime's belongs to whoever started the thread.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from cenote_worker.in_jail.forking.memory_map import MemoryMap
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.own_threads import TASKS, thread_count

__builtins__ = BUILTINS

_listdir = os.listdir

_STACK_BYTES = 16 * 2**10
"""What of a stack is looked at. A waiting pool thread is some hundred bytes deep."""

_RUNTIMES = ("libc.so", "libc-", "libpthread", "libstdc++", "libgcc_s", "ld-linux", "libm.so")
"""They run on behalf of somebody, whose address comes next. musl's is one file, called as its loader is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeThread:
    """name: as the kernel has it. library: file name of the code that it runs; empty when that cannot be seen,
    since it is running or has ended meanwhile.
    """

    id: int
    name: str
    library: str


def others(known: Collection[int] = ()) -> list[int]:
    """The kernel's ids of all threads but the main one and those that are known.

    Where the walls do not let a process list its own threads, as at `landlock`, it may still learn how many there
    are: each unknown one has the id 0 then.
    """
    main = os.getpid()
    try:
        ids = map(int, _listdir(TASKS))
    except PermissionError:
        return [0] * (thread_count() - 1 - len(known))
    return [id for id in ids if id != main and id not in known]


def is_alone() -> bool:
    """Whether there is no thread but the one that asks. Cheaper than a list of them."""
    return thread_count() == 1


def look_at(threads: Iterable[int], mapped: MemoryMap) -> list[NativeThread]:
    return [NativeThread(id=id, name=_name(id), library=_library(id, mapped)) for id in threads]


def _name(task: int) -> str:
    return _read(task, "comm").decode(errors="replace").strip()


def _library(task: int, mapped: MemoryMap) -> str:
    words = _read(task, "syscall").split()
    if len(words) < 3:  # it runs: there is no place where its stack would be quiet
        return ""
    for address in _stack(int(words[-2], 16), mapped):
        region = mapped.at(address)
        if region is not None and region.is_code:
            name = region.file.rpartition("/")[2]
            if not name.startswith(_RUNTIMES):
                return name
    return ""


def _stack(pointer: int, mapped: MemoryMap) -> Iterator[int]:
    """The words of a stack, from its innermost frame outwards. Read as a file: a bad address is an error then."""
    region = mapped.at(pointer)
    if region is None:
        return
    size = min(region.end - pointer, _STACK_BYTES) & ~7
    with suppress(OSError), open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(pointer)
        for (word,) in struct.iter_unpack("@Q", (memory.read(size) or b"")[: size & ~7]):
            yield word


def _read(task: int, file: str) -> bytes:
    """Empty when the thread has ended, and where the kernel has no such file, as gVisor's."""
    with suppress(OSError), open(f"{TASKS}/{task}/{file}", "rb") as lines:
        return lines.read()
    return b""
