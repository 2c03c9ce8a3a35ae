"""The order of samples."""

from __future__ import annotations

from benchmarks.runtime.measure import Measure
from benchmarks.runtime.plan import plan


def measure(name: str, rounds: int | None = None, only: tuple[str, ...] = ()) -> Measure:
    return Measure(
        name=name, title=name, run=lambda _kind, _parameters: {}, figures={}, rounds=rounds, only=only
    )


def order(measures: list[Measure], contenders: str, rounds: int) -> list[str]:
    return [
        f"{turn.round}{turn.measure.name}{turn.contender}"
        for turn in plan(measures, list(contenders), rounds)
    ]


def test_contenders_alternate_within_a_measure_and_the_first_one_changes() -> None:
    """Drift of the machine affects all contenders alike: A B C, then B C A."""
    assert ["0mA", "0mB", "0mC", "1mB", "1mC", "1mA"] == order([measure("m")], "ABC", 2)


def test_a_measure_has_no_more_rounds_than_it_asks_for() -> None:
    """An expensive measure stops early; the others continue."""
    assert ["0mA", "0nA", "1nA"] == order([measure("m", rounds=1), measure("n")], "A", 2)


def test_a_measure_can_be_for_some_contenders_only() -> None:
    """Contenders outside `only` get no turn, and a measure without any of the requested ones is left out."""
    assert ["0nB"] == order([measure("m", only=("C",)), measure("n", only=("B",))], "AB", 1)
