"""Plain values and lists of them as bytes, and back: in the jail alone, whose own process wrote them."""

from __future__ import annotations

import marshal
from typing import Any, Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_INTERNED: Final = b"tAZ"
"""How a text begins of which Python has only one: the bytes say so, and whoever reads them gets that one."""

_dumps, _loads = marshal.dumps, marshal.loads


def packed(value: Any) -> bytes:
    return _dumps(value)


def unpacked(data: bytes) -> Any:
    """Raises ValueError, EOFError or TypeError for what is no such value."""
    return _loads(data)


def is_interned(text: str) -> bool:
    """Whether `unpacked` gives this very object, where it is there."""
    return _dumps(text)[0] & 0x7F in _INTERNED
