"""Which shared values make room for another."""

from __future__ import annotations

from cenote_worker.node.value_store import InMemory, evicted


def value(name: str, size: int, used: int, held: bool = False) -> InMemory:
    return InMemory(name=name, size=size, used=used, held=held)


def names(values: list[InMemory], lacking: int) -> list[str] | None:
    leaving = evicted(values, lacking)
    return leaving if leaving is None else [one.name for one in leaving]


def test_the_least_recently_used_go_first_and_no_more_than_needed() -> None:
    """Whatever the order and the sizes of the values."""
    values = [value("new", 10, 3), value("old", 10, 1), value("middle", 10, 2)]
    assert ["old"] == names(values, 10)
    assert ["old", "middle"] == names(values, 11)
    assert [] == names(values, 0)


def test_what_a_runtime_has_stays() -> None:
    """Evicting it would not free its memory."""
    values = [value("held", 10, 1, held=True), value("idle", 10, 2)]
    assert ["idle"] == names(values, 5)


def test_nothing_goes_in_vain() -> None:
    """Where evicting all candidates is not enough, only the new value goes to disk."""
    assert names([value("held", 10, 1, held=True), value("idle", 10, 2)], 11) is None
