"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re

from cenote_security.errors import UsageError

Size = int | str

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_size(size: Size) -> int:
    """Bytes in a size such as `2 * 2**30`, `"512MiB"` or `"1.5 GB"`.

    Raises UsageError for anything else, negative numbers included.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 0:
            raise UsageError(f"a size cannot be negative: {size}")
        return size
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None or match[2].upper() not in _UNITS:
        raise UsageError(f'not a size: {size!r}; write bytes as an int, or e.g. "512MiB", "2GB"')
    return int(float(match[1]) * _UNITS[match[2].upper()])
