"""Result of one trap in one system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cenote.harness.applying.auditor import same_text

Verdict = Literal["right", "wrong", "refused", "broke"]
"""right: the state equals that of a full run. wrong: the state differs and no error was reported. refused: the
system reports that it does not support such a program. broke: an internal error of the system, or no answer."""
VERDICTS: tuple[Verdict, ...] = ("right", "wrong", "refused", "broke")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """cells: number of cells run to apply the patch. note: why the result was not right."""

    trap: str
    verdict: Verdict
    cells: int = 0
    note: str = ""

    @classmethod
    def judged(cls, trap: str, wanted: str, found: str, cells: int) -> Outcome:
        """Judges by the printed look at the state, ignoring addresses."""
        right = same_text(wanted, found)
        note = "" if right else f"{found} instead of {wanted}"
        return cls(trap=trap, verdict="right" if right else "wrong", cells=cells, note=note)


@dataclass(frozen=True, kw_only=True)
class Played:
    """Results of all traps in one system. missing: why there are none."""

    system: str
    asked: str
    outcomes: Sequence[Outcome] = ()
    missing: str = ""

    def count(self, verdict: Verdict) -> int:
        return sum(outcome.verdict == verdict for outcome in self.outcomes)
