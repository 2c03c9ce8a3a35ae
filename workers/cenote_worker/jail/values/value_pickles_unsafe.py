"""Pickles of this jail's values, for other jails to open.

A value that came in sealed memory, and is still what that memory holds, is not copied. Pickling it again gives the
same stream, and the same buffers: each at the address where the memory is mapped, and each page of them still the
file's. Then the memory is the packed value, byte for byte. A view, another shape or a change of one byte gives
another stream, other buffers, or a page of this process's own.
"""

from __future__ import annotations

import fcntl
import functools
import io
import os
import pickle
import re
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any, Final

import cloudpickle

from cenote_security.sealed_memory import CONTENT_SEALS, SealedMemory
from cenote_worker.jail.libraries.pydantic_schemas import reduced_schema
from cenote_worker.jail.process.proc_info import descriptors
from cenote_worker.jail.tracking.descriptions.known_digests import LARGE, address_of_buffer, is_untouched
from cenote_worker.jail.values.pickle_reducers import CACHED, reduced_property, refuse_cache
from cenote_worker.pickling.buffers_unsafe import KeepInBand, dumps
from cenote_worker.pickling.classes_unsafe import reduced_class, reduced_late_type
from cenote_worker.pickling.code_objects import reduced_code
from cenote_worker.pickling.tensors_unsafe import reduced_tensor
from cenote_worker.process.pristine import BUILTINS, own_builtins
from cenote_worker.transport.content import Content, packed_head

__builtins__ = BUILTINS


@own_builtins()
def dump(value: object) -> Content:
    """Pickles by value. Raises any error of the value's own pickling."""

    def pickle_to(stream: io.BytesIO, keep_in_band: KeepInBand) -> None:
        _Pickler(stream, protocol=5, buffer_callback=keep_in_band).dump(value)

    return dumps(pickle_to, _same_content)


@own_builtins()
def sent_class(tracked: str, pickled: bytes) -> type:
    """A class that the client sent by value before: the existing class if it is still known.

    tracked: cloudpickle's name for it. Processes that were restored may not know it.
    """
    known = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracked)
    cls: type = known if isinstance(known, type) else pickle.loads(pickled)
    return cls


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is CACHED and (obj.__module__ == "__main__" or "<locals>" in obj.__qualname__):
            refuse_cache(obj)
        if type(obj) is functools.cached_property:
            return reduced_property(obj)
        if type(obj) is CodeType:
            return reduced_code(obj)
        reduced = reduced_schema(obj) or reduced_late_type(obj) or reduced_tensor(obj, whole=False)
        if reduced is None:
            reduced = super().reducer_override(obj)
        return reduced_class(obj, reduced, numbered=True) if isinstance(obj, type) else reduced


_PRIVATE: Final = re.compile(
    rb"([0-9a-f]+)-([0-9a-f]+) rw-p ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) +/memfd:"
)
"""A line of a private mapping of a memory file: addresses, offset, device, inode."""

_fstat, _pread, _control, _dup = os.fstat, os.pread, fcntl.fcntl, os.dup

_File = tuple[int, int]
"""Device and inode."""


def _same_content(stream: bytes | memoryview, buffers: Sequence[memoryview]) -> Content | None:
    """The content that packing these would make, if memory of this process has it already. The caller closes it."""
    if sum(buffer.nbytes for buffer in buffers) < LARGE:
        return None
    try:
        places = [(address_of_buffer(buffer), buffer.nbytes) for buffer in buffers]
    except KeyError:
        return None
    head, offsets, size = packed_head(stream, [length for _, length in places])
    file = _file_of(places, offsets)
    if file is None or not all(is_untouched(*place) for place in places):
        return None
    descriptor = _descriptor_of(file, size)
    if descriptor is None or _pread(descriptor, len(head), 0) != head:
        return None
    memory = SealedMemory(_dup(descriptor), size)
    return Content(size=size, count=1 + len(places), memory=memory)


def _file_of(places: Sequence[tuple[int, int]], offsets: Sequence[int]) -> _File | None:
    """The memory file that has each of these, addresses and lengths, at its offset."""
    try:
        with open("/proc/self/maps", "rb") as lines:
            found = [match.groups() for line in lines if (match := _PRIVATE.match(line))]
    except OSError:  # at `landlock`
        return None
    files = set[_File | None]()
    for (address, length), wanted in zip(places, offsets, strict=True):
        files.add(_at(found, address, length, wanted))
    return files.pop() if len(files) == 1 else None


def _at(regions: Iterable[tuple[bytes, ...]], address: int, length: int, wanted: int) -> _File | None:
    """The file that one of these regions, matches of `_PRIVATE`, has there at that offset."""
    for *numbers, inode in regions:
        start, end, offset, major, minor = (int(number, 16) for number in numbers)
        if start <= address and address + length <= end and offset + address - start == wanted:
            return os.makedev(major, minor), int(inode)
    return None


def _descriptor_of(file: _File, size: int) -> int | None:
    """A descriptor of that file, if it is sealed and has this size. Each mapping of Python's has one."""
    for number in descriptors():
        try:
            status = _fstat(number)
            if (status.st_dev, status.st_ino, status.st_size) != (*file, size):
                continue
            if _control(number, fcntl.F_GET_SEALS) & CONTENT_SEALS == CONTENT_SEALS:
                return number
        except OSError:  # it was closed meanwhile, or is no memory: a shared value may be on disk
            continue
    return None
