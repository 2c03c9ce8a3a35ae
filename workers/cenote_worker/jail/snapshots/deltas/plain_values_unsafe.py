"""Plain values and lists of them as bytes, and back. Used in the jail alone, on bytes that the jail's process
wrote."""

from __future__ import annotations

import marshal
from typing import Any, Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_INTERNED: Final = b"tAZ"
"""How an interned string begins: unpacking it gives the single instance."""

_dumps, _loads = marshal.dumps, marshal.loads


def packed(value: Any) -> bytes:
    return _dumps(value)


def unpacked(data: bytes) -> Any:
    """Raises ValueError, EOFError or TypeError for other data."""
    return _loads(data)


def is_interned(text: str) -> bool:
    """Whether `unpacked` gives this very object, in the process that has it."""
    return _dumps(text)[0] & 0x7F in _INTERNED
