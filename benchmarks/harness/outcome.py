"""What became of a trap in one system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cenote.harness.applying.auditor import same_text

Verdict = Literal["right", "wrong", "refused", "broke"]
"""right: the state is that of a full run. wrong: it is another one, and nothing said so. refused: the system does not
take such a program, and says so. broke: an error of the system's own, or no answer."""
VERDICTS: tuple[Verdict, ...] = ("right", "wrong", "refused", "broke")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """cells: how many have run to apply the patch. note: why it was not right."""

    trap: str
    verdict: Verdict
    cells: int = 0
    note: str = ""

    @classmethod
    def judged(cls, trap: str, wanted: str, found: str, cells: int) -> Outcome:
        """By what a look at the state gives, addresses aside."""
        right = same_text(wanted, found)
        note = "" if right else f"{found} instead of {wanted}"
        return cls(trap=trap, verdict="right" if right else "wrong", cells=cells, note=note)


@dataclass(frozen=True, kw_only=True)
class Played:
    """All traps in one system. missing: why none was."""

    system: str
    asked: str
    outcomes: Sequence[Outcome] = ()
    missing: str = ""

    def count(self, verdict: Verdict) -> int:
        return sum(outcome.verdict == verdict for outcome in self.outcomes)
