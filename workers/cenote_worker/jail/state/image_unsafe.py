"""Writes this process to a file, and turns a file into this process; see `image/README.md`. Not built for each
machine."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.transport.content import Content
from cenote_worker.transport.image_parts import WHOLE, ImageParts

__builtins__ = BUILTINS

LIBRARY: Final = Path(__file__).parents[2] / "image" / "libcenote-image.so"

_MOST_GIVEN: Final = 4
"""MAX_PASSED of `image.c`."""

_REASONS: Final = {
    errno.EXDEV: "the memory of its zygote is not there",
    errno.ENOTUNIQ: "it is of another kernel",
    errno.EADDRINUSE: "its heap cannot continue here",
    errno.ELIBACC: "the code that becomes it is at another place here",
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


class _Source(ctypes.Structure):
    """`struct source` of `image.c`."""

    _fields_ = (
        ("files", ctypes.c_int32 * 2),
        ("size", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("parts", ctypes.POINTER(ctypes.c_uint64)),
    )


class GivenImage:
    """An image that this process was asked to become. Leaving the context closes its files."""

    def __init__(self, asked: jail_pb2.RestorePiece, descriptors: list[int]) -> None:
        """Takes ownership of the descriptors."""
        order = checkpoint_pb2.ProcessOrder.FromString(Content.delivered(asked.content, []).whole())
        self._parts = ImageParts.from_message(order.parts)
        self._memories = [Content.delivered(each, descriptors) for each in asked.memories]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for memory in self._memories:
            memory.close()

    def become(self, fixed: int, given: tuple[int, ...]) -> None:
        """See `become`."""
        files = [each.memory.fileno() for each in self._memories if each.memory is not None]
        if len(files) != len(self._memories):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        file, *others = files
        base = others.pop(0) if self._parts != WHOLE else -1
        common = others.pop(0) if others else -1
        become(file, base, self._memories[0].size, self._parts.extents(), common, fixed, given)


def become(
    file: int,
    base: int,
    size: int,
    parts: Sequence[tuple[int, int, bool]],
    common: int,
    fixed: int,
    given: tuple[int, ...],
) -> None:
    """Never returns: this process, which has one thread, becomes the one in an image of this many bytes.

    parts: where the image is from an offset on, the first of which is 0: the offset, that in the file, and whether
    that is `base`, which is -1 if none is. common: a file with the memory of its zygote; -1 for none. It keeps its
    descriptors below `fixed`, and gets those in `given` under other numbers, in this order; all others are closed.
    Raises OSError when it cannot; then at most descriptors have changed.
    """
    numbers = (ctypes.c_int * len(given))(*given)
    table = (ctypes.c_uint64 * (3 * len(parts)))(*(number for part in parts for number in part))
    source = _Source((ctypes.c_int32 * 2)(file, base), size, len(parts), table)
    _checked(_there().image_become(ctypes.byref(source), common, fixed, numbers, len(given)))


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
