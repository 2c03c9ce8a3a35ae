"""A long session as an agent has it: names, objects and files become more, and no cell gets anything else to do.

In the end there are 300 names, 10,000 objects and 500 files. Each cell does one small thing; what it costs at the end
of the session, against the beginning, is what the record pays for what exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.record.contenders import Contender
from benchmarks.state.cpu import timed

CELLS: Final = 1_000
PART: Final = 100
"""Cells of one part, with all kinds of cells in equal numbers."""

SETUP: Final = """\
from pathlib import Path
class Entry:
    def __init__(self, i):
        self.i, self.name = i, f"n{i}"
log, index = [], {}
"""


def cell(i: int) -> str:
    """The cell with this number, one of ten kinds. Three of ten bind a new name, and five write a new file."""
    name = f"v{i // 10 * 3 + i % 10}"
    return (
        f"{name} = [{i}, 'a', {i * 1.5}]",
        f"{name} = {{'count': len(log), 'last': {i}}}",
        f"def {name}(x, step={i}):\n    return [x + step, len(index)]",
        f"for k in range(100):\n    log.append(Entry({i} * 100 + k))\nPath('f{i}.txt').write_text('x' * 100)",
        f"index['k{i}'] = log[-1].name\nPath('f{i}.txt').write_text(str(len(log)))",
        f"total = sum(each.i for each in log[-50:])\nPath('f{i}.txt').write_text(str(total))",
        f"print(v{i // 10 * 3}[0], v{i // 10 * 3 + 1}['last'])",
        f"text = Path('f{i - 4}.txt').read_text()\nprint(len(text))",
        f"log[{i} % len(log)].i = -{i}\nPath('f{i}.txt').write_text('changed')",
        f"found = v{i // 10 * 3 + 2}({i})\nPath('f{i}.txt').write_text(str(found))",
    )[i % 10]


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a cell of one part of the session costs one contender, in seconds."""

    wall: float
    cpu: float


def run(contenders: Mapping[str, Contender]) -> dict[str, list[Part]]:
    """The parts of the session in order. The contenders take turns, part after part."""
    for each in contenders.values():
        each.execute(SETUP)
    found = {each: list[Part]() for each in contenders}
    for start in range(0, CELLS, PART):
        cells = [cell(i) for i in range(start, start + PART)]
        for who, contender in contenders.items():
            _, wall, cpu = timed(partial(_execute, contender, cells))
            found[who].append(Part(wall=wall / PART, cpu=cpu / PART))
    return found


def _execute(contender: Contender, cells: list[str]) -> None:
    for each in cells:
        contender.execute(each)
