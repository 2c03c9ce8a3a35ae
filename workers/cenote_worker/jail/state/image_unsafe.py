"""Writes this process to a file, and turns a file into this process; see `image/README.md`. Not built for each
machine."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from pathlib import Path
from typing import Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

LIBRARY: Final = Path(__file__).parents[2] / "image" / "libcenote-image.so"

_MOST_GIVEN: Final = 4
"""MAX_PASSED of `image.c`."""

_REASONS: Final = {
    errno.EXDEV: "it is of another zygote, whose memory is not there, or of another kernel",
    errno.ESTALE: "a file that is mapped there is not what it was",
    errno.ENODEV: "a device is mapped there",
}


def _opened() -> ctypes.PyDLL | None:
    """Loaded with the zygote's own libraries, so that it has the same address in all forks of it.

    As PyDLL: the interpreter's lock is held all the time, and no Python code runs in between.
    """
    if not LIBRARY.exists():
        return None
    library = ctypes.PyDLL(str(LIBRARY))
    for function in (library.image_size, library.image_write, library.image_become):
        function.restype = ctypes.c_long
    return library


_library = _opened()
_main = threading.main_thread()


def size() -> int:
    """The maximum number of bytes of an image of this process. Raises OSError."""
    return _checked(_there().image_size())


def write(file: int) -> tuple[int, ...] | None:
    """Writes this process, which has one thread, into a memory file that is large enough. None when that is done.

    In a process made from what was written: returns the descriptors that it was given. Raises OSError.
    """
    given = (ctypes.c_int * _MOST_GIVEN)()
    if not _checked(_there().image_write(file, given)):
        return None
    _main._set_native_id()  # type: ignore[attr-defined]
    return tuple(number for number in given if number)


def become(file: int, common: int, fixed: int, given: tuple[int, ...]) -> None:
    """Never returns: this process, which has one thread, becomes the one in the file.

    common: a file with the memory of its zygote, if that is another one than this process's; else -1.
    It keeps its descriptors below `fixed`, and gets those in `given` under other numbers, in this order; all others
    are closed. Raises OSError when it cannot; then at most descriptors have changed.
    """
    numbers = (ctypes.c_int * len(given))(*given)
    _checked(_there().image_become(file, common, fixed, numbers, len(given)))


def _there() -> ctypes.PyDLL:
    if _library is None:
        raise OSError(
            errno.ENOSYS, "this installation has no images of processes: they are built for x86-64 only"
        )
    return _library


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(-result, _REASONS.get(-result) or os.strerror(-result))
    return result
