"""The traps of `traps.txt`, and of the files beside it for this Python, as data."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILES = ("traps.txt", *(f"traps-3.{minor}.txt" for minor in (12, 13) if sys.version_info >= (3, minor)))


@dataclass(frozen=True, kw_only=True)
class Trap:
    """step: counted from 1. look: an expression that must equal that of a full run of the patched program."""

    name: str
    cells: tuple[str, ...]
    step: int
    code: str
    look: str

    @property
    def patched(self) -> tuple[str, ...]:
        return (*self.cells[: self.step - 1], self.code, *self.cells[self.step :])


def _trap(text: str) -> Trap:
    head, _, look = text.rpartition("\n?? ")
    cells, step, code = re.split(r"(?m)^>> (\d+)\n", head)
    name, _, cells = cells.partition("\n")
    parts = tuple(part.strip("\n") for part in re.split(r"(?m)^--$", cells))
    return Trap(name=name.strip(), cells=parts, step=int(step), code=code.strip("\n"), look=look.strip())


def load(files: Sequence[str] = FILES) -> tuple[Trap, ...]:
    texts = [(Path(__file__).parent / file).read_text() for file in files]
    return tuple(_trap(part) for text in texts for part in re.split(r"(?m)^== ", text)[1:])


TRAPS = load()
