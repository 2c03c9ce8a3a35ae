"""Atoms and plain containers as bytes, for hashing. Nothing is ever read back."""

from __future__ import annotations

import marshal
from typing import Any

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_dumps = marshal.dumps
_PLAIN = 2
"""The format without references: those depend on how often an object happens to be referred to."""


def packed(value: Any) -> bytes:
    """Equal for equal values only: types, the order of dictionaries, signs of zeros and bits of NaNs are kept."""
    return _dumps(value, _PLAIN)
