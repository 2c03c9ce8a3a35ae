"""Cells that do little by themselves, each with a name."""

from __future__ import annotations

from typing import Final

CELLS: Final = (
    ("nothing", "x = 1"),
    ("a file written", "open('a', 'w').write('b' * 1000)"),
    ("1e6 calls", "for _ in range(10**6): len(())"),
)
