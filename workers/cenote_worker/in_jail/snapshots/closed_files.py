"""Files that were closed, as a `with` leaves them behind under a name: told by what can still be seen of one.

That is its name and mode and, of texts, the encoding and which ends of lines were met. Another one of which the same
is told is the same to any program, as long as nobody else has the file or something that is inside of it.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Final
from weakref import getweakrefcount

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

Told = tuple[str, str, str | None, str | None, tuple[str, ...]]
"""Name, mode, encoding, how errors are met, ends of lines. The third and fourth are None for files of bytes."""

_BUFFERED: Final = frozenset((io.BufferedReader, io.BufferedWriter, io.BufferedRandom))
_OF_RAW: Final = frozenset(("name", "__IOBase_closed"))
_MAX_NAME: Final = 1_000

_ONE: Final = 2
"""What Python counts of an object that one other has: that one, and the argument."""

_count = sys.getrefcount
_open = io.open
_memory, _write, _seek, _close = os.memfd_create, os.write, os.lseek, os.close


def told_of(value: object) -> Told | None:
    """None for what is no closed file, or has more to it."""
    if type(value) is not io.TextIOWrapper and type(value) not in _BUFFERED:
        return None
    try:
        return _told(value) if value.closed else None  # type: ignore[attr-defined]
    except ValueError:  # it was detached
        return None


def can_be_rebuilt(told: Told) -> bool:
    try:
        return told_of(rebuilt(told)) == told
    except (OSError, ValueError, LookupError):
        return False


def rebuilt(told: Told) -> object:
    """Raises OSError, ValueError or LookupError."""
    name, mode, encoding, errors, ends = told
    memory = _memory("closed", os.MFD_CLOEXEC)
    try:
        value: Any = _open(memory, mode, encoding=encoding, errors=errors)
    except BaseException:
        _close(memory)
        raise
    with value:
        if ends:
            _write(memory, " ".join(ends).encode(encoding or ""))
            value.seek(0)
            value.read()
    raw = value.raw if encoding is None else value.buffer.raw
    raw.name = name
    return value


def _told(value: Any) -> Told | None:
    is_text = type(value) is io.TextIOWrapper
    if is_text and (type(value.buffer) not in _BUFFERED or value.__dict__.keys() != {"mode"}):
        return None  # over a compressed file, or memory; or made by hand, and not by `open`
    if _has_others(value, is_text):
        return None
    buffer = value.buffer if is_text else value
    if buffer.__dict__ or type(buffer.raw) is not io.FileIO or buffer.raw.__dict__.keys() != _OF_RAW:
        return None
    raw, told = buffer.raw, (buffer.raw.name, value.mode)
    if any(map(getweakrefcount, (value, buffer, raw))) or set(map(type, told)) != {str}:
        return None
    if not (raw.closed and raw.closefd and len(told[0]) <= _MAX_NAME):
        return None
    if not is_text:
        return (*told, None, None, ())
    if value.line_buffering or value.write_through:
        return None
    codec, ends = (value.encoding, value.errors), value.newlines
    if set(map(type, codec)) != {str}:
        return None
    return (*told, *codec, (ends,) if type(ends) is str else ends or ())


def _has_others(value: Any, is_text: bool) -> bool:
    """Whether anybody else has what is inside: no variable may, while this is asked."""
    if is_text:  # which has the file itself as well as the buffer
        return _count(value.buffer) != _ONE or _count(value.buffer.raw) != _ONE + 1
    return _count(value.raw) != _ONE
