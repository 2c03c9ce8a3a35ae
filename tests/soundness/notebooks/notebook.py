"""Notebooks of the corpus: cells, and realistic patches of them.

`corpus/NAME.py` holds cells, each below a `# %%` line. `corpus/NAME.toml` holds patches: the step, the text to
find, its replacement, and the reason.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
NAMES = tuple(sorted(path.stem for path in CORPUS.glob("*.py")))


@dataclass(frozen=True, kw_only=True)
class Edit:
    """step: counted from 1. find: occurs once in that step."""

    reason: str
    step: int
    find: str
    replace: str


@dataclass(frozen=True, kw_only=True)
class Notebook:
    name: str
    cells: tuple[str, ...]
    edits: tuple[Edit, ...]

    def edited(self, edit: Edit) -> tuple[str, ...]:
        """All cells, with this one change."""
        index = edit.step - 1
        changed = self.cells[index].replace(edit.find, edit.replace)
        return (*self.cells[:index], changed, *self.cells[index + 1 :])


def load(name: str) -> Notebook:
    parts = re.split(r"(?m)^# %%", (CORPUS / f"{name}.py").read_text())[1:]
    cells = tuple(part.split("\n", 1)[1].rstrip("\n") for part in parts)
    patches = tomllib.loads((CORPUS / f"{name}.toml").read_text())["patch"]
    return Notebook(name=name, cells=cells, edits=tuple(Edit(**patch) for patch in patches))
