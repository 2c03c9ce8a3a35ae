"""Threads and forks through C functions: pausing pools of native libraries, and forking while other Python threads
run.

Pools of OpenMP and OpenBLAS end their threads on request, and start them again when they are next needed.

In the child of a process with other Python threads, the interpreter's lock must be a new one. A thread that waits for
the lock asks its holder to hand it over. A child forked at that time would hand the lock to a thread that it does not
have, and wait forever. `os.fork` renews the lock, but runs the hooks of `os.register_at_fork`, which are user code
and may do anything.
"""

from __future__ import annotations

import _ctypes
import ctypes
import gc
import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, islice, tee
from operator import call, not_
from typing import Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_visit_libraries = ctypes.CDLL(None).dl_iterate_phdr
# Not by `ctypes.CDLL`, which looks functions up with builtins that a cell may have replaced.
_open, _address_of = _ctypes.dlopen, _ctypes.dlsym
_Function = ctypes.CFUNCTYPE(ctypes.c_int)
_LOADED = os.RTLD_NOW | os.RTLD_NOLOAD


class _LibraryInfo(ctypes.Structure):
    """The beginning of `struct dl_phdr_info`."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


_Visitor = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_LibraryInfo), ctypes.c_size_t, ctypes.c_void_p)

_OPENMP = ("libgomp", "libomp", "libiomp5")
_OPENBLAS = "openblas"

_OMP_PAUSE_HARD = 2
_OPENBLAS_CALLS = ("blas_thread_shutdown_", "blas_thread_shutdown_64_")
"""Not in its header, but exported; it is what OpenBLAS itself calls before each fork of its process."""


def pause_native_pools() -> None:
    """End the idle threads of the OpenMP runtimes and OpenBLAS that are loaded.

    Ends only the pools of the calling thread, outside of any parallel region. GNU OpenMP needs this before a fork: a
    child of a process with such a pool waits forever in its first parallel region. OpenBLAS does not need it, but its
    threads spin for about 25 ms after each product; during that time their library cannot be identified.
    """
    for file in _loaded():
        name = file.rpartition("/")[2]
        if name.startswith(_OPENMP):
            _call(file, ("omp_pause_resource_all",), _OMP_PAUSE_HARD)
        elif _OPENBLAS in name:
            _call(file, _OPENBLAS_CALLS)


def _loaded() -> list[str]:
    """Paths of the shared libraries of this process. Asks the loader, which works where `/proc` is closed too."""
    files: list[str] = []

    def note(info: ctypes._Pointer[_LibraryInfo], _size: int, _data: object) -> int:
        files.append(os.fsdecode(info.contents.name or b""))
        return 0

    _visit_libraries(_Visitor(note), None)
    return files


def _call(file: str, names: Iterable[str], *arguments: int) -> None:
    """Calls the first of these functions that a library has. The library is already loaded, so no code of the file
    runs."""
    with suppress(OSError):
        library = _open(file, _LOADED)
        for name in names:
            with suppress(OSError):
                function = _Function(_address_of(library, name))
                function(*arguments)
                return


_python = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock during the call
_fork = _python.fork
_before, _in_child, _in_parent = (
    _python.PyOS_BeforeFork,
    _python.PyOS_AfterFork_Child,
    _python.PyOS_AfterFork_Parent,
)
_before.restype = _in_child.restype = _in_parent.restype = None


def _hooks(kind: str) -> list[object]:
    """The interpreter's own list of hooks, which only C code can name. kind: keyword of `os.register_at_fork`."""

    def mark() -> None:
        """Referred to by nothing else."""

    os.register_at_fork(**{kind: mark})
    (hooks,) = (each for each in gc.get_referrers(mark) if type(each) is list)
    hooks.remove(mark)
    return hooks


_HOOKS: Final = tuple(map(_hooks, ("before", "after_in_child", "after_in_parent")))


def fork_from_threads() -> int:
    """The C library's fork; 0 in the child, which has only this thread. No hook runs. Raises OSError.

    In the child, the interpreter's records of the other threads are gone.
    """
    kept = [list(hooks) for hooks in _HOOKS]
    try:
        for hooks in _HOOKS:
            hooks.clear()
        # The iterators are C and call C. No bytecode runs between the first call and the last: with any bytecode the
        # interpreter might hand its lock over.
        forked = islice(map(call, (_before, _fork)), 1, None)
        of_child, of_parent, last = tee(forked, 3)
        list(chain(map(_in_child, filter(not_, of_child)), map(_in_parent, filter(None, of_parent))))
    finally:
        for hooks, former in zip(_HOOKS, kept, strict=True):
            hooks[:] = former
    pid: int = next(last)
    if pid < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pid
