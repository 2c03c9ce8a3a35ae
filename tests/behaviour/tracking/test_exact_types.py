"""The types of a container's items are found without writing to any of them."""

from __future__ import annotations

import os
import resource
import threading

import numpy as np
import pytest

from cenote_worker.jail.tracking.descriptions import object_memory_unsafe as exact
from cenote_worker.jail.tracking.descriptions.object_memory_unsafe import (
    FEWEST,
    atoms_of,
    atoms_of_keys,
    atoms_of_values,
)

NAN = float("nan")
ATOMS: tuple[object, ...] = (1, 1.5, "a", b"b", True, 1j, None, ...)


class Text(str):
    """No atom: it may have any behaviour."""


class Numbers(list[int]):
    """No list: iteration may return other items than it stores."""


def padded(*others: object) -> list[object]:
    return [*range(FEWEST), *others, *range(FEWEST)]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a worker, whatever threads this process has."""
    monkeypatch.setattr(exact, "_is_alone", lambda: True)
    monkeypatch.setattr(exact, "_READER", exact._reader())  # numpy may have been imported after the tracker


@pytest.mark.parametrize("values", [list(ATOMS) * FEWEST, ATOMS * FEWEST], ids=["list", "tuple"])
def test_the_types_of_atoms_are_known(values: list[object]) -> None:
    assert (set(map(type, ATOMS)), False) == atoms_of(values)


@pytest.mark.parametrize(
    "odd", [[1], (1,), Text("a"), bytearray(b"a"), np.float64(0.5), np.str_("a"), object, {}]
)
def test_whatever_is_no_atom_is_found_among_them(odd: object) -> None:
    values = padded(odd)
    table = dict(enumerate(values))
    assert atoms_of(values) is None
    assert atoms_of(tuple(values)) is None
    assert atoms_of_values(table) is None
    assert ({int}, False) == atoms_of_keys(table)
    assert odd.__hash__ is None or atoms_of_keys({each: 1 for each in values}) is None


@pytest.mark.parametrize("nan", [NAN, complex(0, NAN), complex(NAN, 0)])
def test_numbers_that_are_not_equal_to_themselves_are_found(nan: complex) -> None:
    found = atoms_of(padded(nan, 2.5, 1j))
    assert found is not None
    assert found.nan
    assert atoms_of(padded(float("inf"), -0.0, complex(float("inf"), 0))) == ({int, float, complex}, False)


def test_dictionaries_are_read_whatever_they_have_been_through() -> None:
    """With text keys and others, with gaps, grown, and merged from others."""
    table: dict[object, object] = {str(number): number for number in range(2 * FEWEST)}
    assert (({str}, False), ({int}, False)) == (atoms_of_keys(table), atoms_of_values(table))
    for number in range(0, FEWEST, 2):
        del table[str(number)]
    table["1"] = [1]
    assert atoms_of_values(table) is None
    del table["1"]
    table |= {number: b"" for number in range(FEWEST)}
    assert (({str, int}, False), ({int, bytes}, False)) == (atoms_of_keys(table), atoms_of_values(table))
    assert (({str, int}, False), ({int, bytes}, False)) == (
        atoms_of_keys(table.copy()),
        atoms_of_values(table.copy()),
    )


def test_attributes_of_an_instance_are_left_to_others() -> None:
    """Values stored in the instance itself are not in a table of the dictionary."""

    class Instance:
        pass

    one = Instance()
    vars(one).update({f"name_{number}": number for number in range(10)})
    assert exact._READER is not None
    assert exact._READER.of_values(vars(one)) in (None, (frozenset((int,)), False))


def test_small_containers_and_those_of_other_classes_are_left_to_others() -> None:
    """At the limit, and one less."""
    assert atoms_of([1] * FEWEST) is not None
    assert atoms_of([1] * (FEWEST - 1)) is None
    assert atoms_of(Numbers([1] * FEWEST)) is None
    assert atoms_of_keys([1] * FEWEST) is None
    assert atoms_of({1: 1}) is None


def test_no_item_is_written_to() -> None:
    """In a fork, where each written page is copied. Iterating over these would copy two thousand."""
    table = {number: str(number) for number in range(100_000)}
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        assert exact._READER is not None
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        exact._READER.of_values(table)
        exact._READER.of_keys(table)
        os.write(writing, str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    copied = int(os.read(reading, 20))
    os.close(reading)
    os.close(writing)
    assert copied < 400


def test_nothing_is_read_beside_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert atoms_of([1] * FEWEST) is None
    finally:
        end.set()
        thread.join()
