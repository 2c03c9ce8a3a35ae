"""What a runtime and its branches had in common last: at the fork or, for what was merged since, at that merge. Pure.

A second merge of one branch asks what either side has done since the first one, as version control does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cenote_worker.history.tree import StepTree

_MERGING: Final = frozenset(("injection", "deletion", "upload", "removal"))


@dataclass(frozen=True, slots=True)
class MergeBase:
    """Behind these steps, ours and theirs, both sides had the same, or had agreed to differ."""

    ours: int
    theirs: int


class MergeBases:
    """Of one runtime, by branch and name. Known to this client alone: another one compares with the fork."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, MergeBase]] = {}

    def note(self, branch: str, names: Iterable[str], base: MergeBase) -> None:
        """branch: the id of its history."""
        self._of.setdefault(branch, {}).update(dict.fromkeys(names, base))

    def still(self, branch: str, ours: StepTree, theirs: StepTree) -> Mapping[MergeBase, frozenset[str]]:
        """The names by their bases, without those that a rollback or a patch has left behind on either side."""
        found: dict[MergeBase, set[str]] = {}
        for name, base in self._of.get(branch, {}).items():
            found.setdefault(base, set()).add(name)
        return {
            base: frozenset(names)
            for base, names in found.items()
            if _is_behind(base.ours, ours) and _is_behind(base.theirs, theirs)
        }


def merged_alone(tree: StepTree, before: int, names: Iterable[str]) -> bool:
    """Whether nothing was done since but to put in, write or delete these."""
    if not _is_behind(before, tree):
        return False
    done = tree.between(before, tree.head)
    return all(one.kind in _MERGING and set(one.names) <= set(names) for one in done)


def _is_behind(step: int, tree: StepTree) -> bool:
    return step == tree.ancestor(step, tree.head)
