"""How two states of one runtime differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cenote.harness.past import Past, Versions, follow
from cenote.harness.step import Step
from cenote.harness.symbols import symbol_of
from cenote_worker.history.step import StepRecord
from cenote_worker.trace import ABSENT, Location, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDiff:
    """From the state after step `a` to that after step `b`.

    added, removed, changed: names of variables, and locations such as `file:report.md`. ancestor: the last step that
    both have behind them. left, right: the steps from there to `a`, and to `b`: how the programs differ. unknown:
    steps among these of which not everything is known: there may be more differences.
    """

    a: int
    b: int
    ancestor: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    left: tuple[Step, ...]
    right: tuple[Step, ...]
    unknown: tuple[int, ...] = ()


def diff(past: Past, a: int, b: int) -> StateDiff:
    """Raises UnknownEntryError for a step that is not there."""
    ancestor, left, right = past.fork(a, b)
    common = past.versions(ancestor)
    before, after = _present(common, left), _present(common, right)
    changed = [each for each in before.keys() & after.keys() if before[each] != after[each]]
    return StateDiff(
        a=a,
        b=b,
        ancestor=ancestor,
        added=_symbols(after.keys() - before.keys()),
        removed=_symbols(before.keys() - after.keys()),
        changed=_symbols(changed),
        left=past.steps(left),
        right=past.steps(right),
        unknown=tuple(each.number for each in (*left, *right) if each.unknown and each.stays),
    )


def _present(common: Versions, records: Iterable[StepRecord]) -> Mapping[Location, Version]:
    known = dict(common)
    follow(known, records)
    return {place: version for place, (version, _) in known.items() if version != ABSENT}


def _symbols(locations: Iterable[Location]) -> tuple[str, ...]:
    return tuple(sorted(map(symbol_of, locations)))
