"""Thread pools of libraries that end their threads when asked, and start them again when they are next needed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_libc = ctypes.CDLL(None)


class _LibraryInfo(ctypes.Structure):
    """The beginning of `struct dl_phdr_info`."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


_Visitor = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_LibraryInfo), ctypes.c_size_t, ctypes.c_void_p)

_OPENMP = ("libgomp", "libomp", "libiomp5")
_OPENBLAS = "openblas"

_OMP_PAUSE_HARD = 2
_OPENBLAS_CALLS = ("blas_thread_shutdown_", "blas_thread_shutdown_64_")
"""Not in its header, but exported; it is what OpenBLAS itself calls before each fork of its process."""


def pause() -> None:
    """End the idle threads of the OpenMP runtimes and OpenBLAS that are loaded.

    Only the pools of the calling thread, outside of any parallel region. GNU's OpenMP needs it before a fork: a child
    of a process with such a pool waits for ever in its first parallel region. OpenBLAS does not need it, but its
    threads spin for some 25 ms after each product, in which nobody could tell whose they are.
    """
    for file in _loaded():
        name = file.rpartition("/")[2]
        if name.startswith(_OPENMP):
            _call(file, ("omp_pause_resource_all",), _OMP_PAUSE_HARD)
        elif _OPENBLAS in name:
            _call(file, _OPENBLAS_CALLS)


def _loaded() -> list[str]:
    """Paths of the shared libraries of this process. The loader knows, where `/proc` is closed too."""
    files: list[str] = []

    def note(info: ctypes._Pointer[_LibraryInfo], _size: int, _data: object) -> int:
        files.append(os.fsdecode(info.contents.name or b""))
        return 0

    _libc.dl_iterate_phdr(_Visitor(note), None)
    return files


def _call(file: str, names: Iterable[str], *arguments: int) -> None:
    """The first of these functions that a library has. Loaded already, so this runs no code of a file's choosing."""
    with suppress(OSError):
        library = ctypes.CDLL(file)
        for name in names:
            with suppress(AttributeError):
                library[name](*arguments)
                return
