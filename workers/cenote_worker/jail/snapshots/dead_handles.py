"""Variables that are unusable in a process that continues from a copy: their resource belongs to one process, or is
shared by all copies and was written to since.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from cenote_worker.jail.process.proc_info import descriptors
from cenote_worker.jail.snapshots.descriptors import is_own
from cenote_worker.jail.tracking.descriptions.classes import module_of, qualname
from cenote_worker.process.memory_unsafe import address_of
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_fstat = os.fstat

MAX_NAMES: Final = 20
"""Names that are reported. More would add nothing."""

MOST_PARTS: Final = 10_000
"""Parts of all plain containers together: looking at them takes two milliseconds. A longer one is not looked into."""

_SHARING: Final = ("multiprocessing.", "ctypes")
"""Modules of types whose objects may be in shared memory."""

_MODULES: Final = ("socket", "_io", "_socket", "ssl", "multiprocessing.connection")


def severed_names(
    namespace: Mapping[str, object],
    links: Collection[int],
    pipes: Collection[int] = (),
    *,
    is_image: bool = False,
) -> list[str]:
    """Variables with such a descriptor, a thread, a process, or memory that all copies of the process share; at most
    MAX_NAMES.

    Values in plain containers count, but only MOST_PARTS of them in all: the restoring process waits for this look,
    and each page looked at is copied. pipes: those of the links. A program often has only the number of a pipe, so an
    int that means something else is reported as well; sockets come with an object, and every event loop has some.
    is_image: the copy is no fork, so it has memory of its own.
    """
    kinds: list[type] = [threading.Thread]
    if "subprocess" in sys.modules:
        kinds.append(sys.modules["subprocess"].Popen)
    nameless = dict(_nameless())
    links, pipes, common = {*nameless, *links}, {*nameless, *pipes}, _Common(nameless.values())
    names, left = list[str](), MOST_PARTS
    for name, value in list(namespace.items()):
        inner = _inner(value, left)
        left -= len(inner)
        if any(
            type(part) in kinds or _has(part, links, pipes) or (common.has(part) and not is_image)
            for part in (value, *inner)
        ):
            names.append(name)
    return names[:MAX_NAMES]


class _Common:
    """Memory that all copies of this process can write to and that is in no named file, such as that of
    `mmap.mmap(-1, ...)` and `multiprocessing.Value`."""

    def __init__(self, nameless: Collection[int]) -> None:
        """nameless: sizes of the open files without a name; each mapping that Python makes is of one of them."""
        self._kind: type | None = getattr(sys.modules.get("mmap"), "mmap", None)
        self._nameless = nameless

    def has(self, value: object) -> bool:
        if self._kind is None:  # `multiprocessing` would have imported it, too
            return False
        array = getattr(sys.modules.get("numpy"), "ndarray", memoryview)
        with suppress(ValueError):  # a view that was released
            while type(value) in (array, memoryview):
                value = value.obj if type(value) is memoryview else value.base  # type: ignore[attr-defined]
        if type(value) is self._kind:
            return (
                self._is_of_no_file(value) if self._stretches is None else self._is_at(value, self._stretches)
            )
        if not module_of(type(value)).startswith(_SHARING):
            return False
        return bool(self._nameless if self._stretches is None else self._stretches)

    @cached_property
    def _stretches(self) -> list[tuple[int, int]] | None:
        """The address ranges; None if this process may not read them. With `landlock` no copy may: a rule can name
        the first process's own folder in `/proc`, but not that of a later one."""
        try:
            return list(_written_by_all())
        except PermissionError:
            return None

    def _is_of_no_file(self, memory: Any) -> bool:
        """Decides by the mapping's own file: none, or one as long as a file without a name. A mapping that is private
        is reported as well, since only its address would distinguish it."""
        if memory.closed:
            return False
        try:
            return memory.size() in self._nameless
        except (OSError, ValueError):  # it has no file, or not one that it knows
            return True

    @staticmethod
    def _is_at(memory: object, stretches: Iterable[tuple[int, int]]) -> bool:
        try:
            address = address_of(memoryview(memory))  # type: ignore[arg-type]
        except (TypeError, ValueError):  # it is read-only or was closed
            return False
        return any(first <= address < last for first, last in stretches)


def _written_by_all() -> Iterator[tuple[int, int]]:
    with open("/proc/self/maps") as lines:
        for line in lines:
            place, rights, _, _, _, *file = line.split(None, 5)
            if rights[1] + rights[3] == "ws" and file and file[0].rstrip().endswith(" (deleted)"):
                first, last = place.split("-")
                yield int(first, 16), int(last, 16)


def _inner(value: object, most: int) -> tuple[object, ...]:
    """The contents of a plain container of at most that many items."""
    if type(value) is dict and len(value) <= most:
        return tuple(value.values())
    # Not by `isinstance`, which asks the value.
    if type(value) in (list, tuple) and len(value) <= most:  # type: ignore[arg-type]
        return tuple(value)  # type: ignore[arg-type]
    return ()


def _has(value: object, links: Collection[int], pipes: Collection[int]) -> bool:
    """Only an object of the standard library is asked for its descriptor: any other may run arbitrary code."""
    if type(value) is int:
        return value in pipes
    if _home(value) == "tempfile":  # asking a temporary file in memory would create a file
        value = vars(value).get("_file")
    if _home(value) not in _MODULES:
        return False
    with suppress(Exception):
        return value.fileno() in links  # type: ignore[attr-defined]
    return False


def _home(value: object) -> str:
    """The module of the value's class, if the class is really found there: any class may name any module."""
    kind = type(value)
    home = module_of(kind)
    return home if vars(sys.modules.get(home, object)).get(qualname(kind)) is kind else ""


def _nameless() -> Iterator[tuple[int, int]]:
    """Writable files that are in no folder, with their sizes: no snapshot restores their contents."""
    for number in descriptors():
        with suppress(OSError):
            status = _fstat(number)
            is_nameless = stat.S_ISREG(status.st_mode) and not status.st_nlink
            if is_nameless and _may_be_written(number) and not is_own(number):
                yield number, status.st_size


def _may_be_written(number: int) -> bool:
    """Values from outside are in memory that is sealed, or was opened for reading."""
    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        return False
    with suppress(OSError):  # it is on disk
        return not fcntl.fcntl(number, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE
    return True
