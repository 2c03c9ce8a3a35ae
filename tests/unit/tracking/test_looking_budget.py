"""Inspection is bounded by counts: a step is traced alike on an idle machine and on a busy one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote_worker.jail.tracking import budget, object_index
from cenote_worker.jail.tracking.budget import InspectionBudget, TooDear
from cenote_worker.jail.tracking.descriptions.object_memory_unsafe import digest_of_numbers
from cenote_worker.jail.tracking.fingerprint import fingerprint_of
from cenote_worker.jail.tracking.tracker import Tracker

SECONDS = 0.06

OBJECTS = 30_000


def test_objects_are_counted() -> None:
    """At the limit, and one more."""
    budget = InspectionBudget(SECONDS)
    for _ in range(10):
        budget.spend(OBJECTS // 10)
    budget.check()
    budget.spend(1)
    with pytest.raises(TooDear):
        budget.check()


def test_bytes_are_counted() -> None:
    """All hashed bytes, small values as well; those are never refused."""
    budget = InspectionBudget(SECONDS)
    assert budget.allows(300_000_000)
    assert budget.has_room(200_000_000)
    assert not budget.has_room(400_000_000)
    assert not budget.allows(400_000_000)
    assert budget.allows(1000)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([*range(100), -1, 2**31 - 1, -(2**31)], id="integers"),
        pytest.param((0.0, -0.0, float("inf"), 1e300), id="floats"),
    ],
)
def test_numbers_are_known_by_their_bytes(values: list[object]) -> None:
    """By their order, types and signs."""
    digest = digest_of_numbers(values)
    assert digest
    assert digest == digest_of_numbers(type(values)(list(values)))
    for others in (values[::-1], values[:-1], [*values, values[-1]], [values[0], values[0], *values[2:]]):
        assert digest != digest_of_numbers(type(values)(others))


@pytest.mark.parametrize(
    "odd", [True, 2**31, float("nan"), (105, 6), "iiii", b"iiii", None, object(), [1], 1j]
)
@pytest.mark.parametrize("number", [7, 7.0])
def test_what_is_no_such_number_is_found_among_them(number: float, odd: object) -> None:
    """At any place, whatever its bytes look like: then all are checked."""
    assert "" == digest_of_numbers([number] * 50 + [odd] + [number] * 50)


def test_what_would_be_too_much_is_not_begun_with() -> None:
    """At the limit, and one more."""
    budget = InspectionBudget(SECONDS)
    budget.foresee(OBJECTS)
    with pytest.raises(TooDear):
        budget.foresee(OBJECTS + 1)


MANY = """
class Node:
    def __init__(self, number):
        self.number = number
many = [Node(number) for number in range(%d)]
"""


class Session:
    """A tracked namespace that counts inspected objects."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.namespace: dict[str, object] = {"__name__": "__main__"}
        self.tracker = Tracker(self.namespace, str(folder))
        self.looks = 0
        self.left = list[str]()
        monkeypatch.setattr(object_index, "fingerprint_of", self._picture_of)

    def _picture_of(self, value: object, *rest: object) -> object:
        self.looks += value is self.namespace.get("many")
        return fingerprint_of(value, *rest)  # type: ignore[arg-type]

    def looks_for(self, code: str) -> int:
        """Records the version of `many` too."""
        before, compiled = self.looks, compile(code, "cell", "exec")
        watch = self.tracker.begin(compiled)
        exec(compiled, self.namespace)
        trace = watch.end()
        if (left := trace.writes.get("name:many")) is not None:
            self.left.append(left)
        return self.looks - before


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Its clock stands still: a collection of the garbage of all tests takes longer than a step may look."""
    monkeypatch.setattr(budget, "_now", lambda: 0.0)
    return Session(tmp_path, monkeypatch)


@pytest.mark.slow
def test_what_is_too_large_is_looked_at_once(session: Session) -> None:
    """Until the name is rebound, or much less is left of it; a step that uses it is assumed to change it."""
    assert 1 == session.looks_for(MANY % (4 * OBJECTS))
    for code in (
        "t = len(many)",
        "many[5].number = 7",
        "x = 2",
        "many.pop()",
        "t = sum(n.number for n in many)",
    ):
        assert 0 == session.looks_for(code), code
    assert len(session.left) == len(set(session.left)) >= 4
    assert 1 <= session.looks_for("del many[1000:]")
    assert 1 <= session.looks_for(MANY % (4 * OBJECTS))  # the small one that it replaces is looked at too
    assert 0 == session.looks_for("t = len(many)")


@pytest.mark.slow
def test_what_has_too_much_memory_in_it_is_looked_at_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its objects have been visited, so that others may be copied without it, unless it contains them."""
    monkeypatch.setattr("cenote_worker.jail.tracking.budget._BYTES_PER_SECOND", 1e6)
    session.looks_for("import numpy\nmany = [numpy.zeros(300_000)]\nother = [1]")
    assert (frozenset({"other"}),) == session.tracker.components(["other"])
    session.looks_for("many.append(other)")
    assert (frozenset({"many", "other"}),) == session.tracker.components(["other"])


@pytest.mark.slow
def test_many_times_the_same_object_is_not_much(session: Session) -> None:
    """Objects are counted, not references to them."""
    session.looks_for(f"class Node: pass\nmany = [Node()] * {5 * OBJECTS}")
    (version,) = session.tracker.versions(["name:many"]).values()
    assert not version.startswith("?")


@pytest.mark.slow
def test_whatever_may_be_in_what_is_too_large_goes_with_it(session: Session) -> None:
    """It was not visited within the budget; copying it alone could duplicate a shared object."""
    session.looks_for(MANY % (24 * OBJECTS))
    session.looks_for(f"one = many[{24 * OBJECTS - 1}]\nother = [1]\nnumber = 1")
    groups = session.tracker.components(["one", "number"])
    assert {frozenset({"many", "one", "other", "Node"}), frozenset({"number"})} == set(groups)
