"""Marks of random generators: they differ when the state differs, and are equal while it is equal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from cenote_worker.jail.tracking.descriptions.object_memory_unsafe import mark_of_legacy, mark_of_random
from cenote_worker.jail.tracking.process_state import ambient_state

OWN = random.Random(1)
NUMPY = np.random.RandomState(1)

MOVES: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "random": (lambda: mark_of_random(OWN), OWN.random),
    "the other half of two": (lambda: mark_of_random(OWN), lambda: OWN.gauss(0, 1)),
    "another seed": (lambda: mark_of_random(OWN), lambda: OWN.seed(2)),
    "numpy": (lambda: mark_of_legacy(NUMPY), NUMPY.random_sample),
    "numpy's other half": (lambda: mark_of_legacy(NUMPY), NUMPY.standard_normal),
    "numpy's other seed": (lambda: mark_of_legacy(NUMPY), lambda: NUMPY.seed(2)),
}


@pytest.mark.parametrize("kind", MOVES)
def test_each_move_shows(kind: str) -> None:
    """Five times in a row: every second normal number comes from the rest of the one before."""
    mark, move = MOVES[kind]
    marks = [mark()]
    for _ in range(1 if "seed" in kind else 5):
        move()
        marks.append(mark())
    assert len(marks) == len(set(marks))


@pytest.mark.parametrize(
    ("mark", "look"), [(mark_of_random, OWN.getstate), (mark_of_legacy, NUMPY.get_state)]
)
def test_a_look_moves_nothing(mark: Callable[[object], object], look: Callable[[], object]) -> None:
    """Nor does an additional reference."""
    generator = OWN if mark is mark_of_random else NUMPY
    before = mark(generator)
    held = [generator, look()]
    assert before == mark(held[0])


class _Other(np.random.RandomState):
    """A subclass in Python: it may store its state anywhere."""


def test_generators_of_other_kinds_have_no_mark() -> None:
    """Their state is read each time."""
    assert [mark_of_legacy(_Other(1)), mark_of_legacy(np.random.RandomState(np.random.PCG64(1)))] == [
        None,
        None,
    ]


@pytest.fixture
def _as_before() -> Iterator[None]:
    states = random.getstate(), np.random.get_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize("state", ["random", "numpy.random"])
def test_a_version_is_of_the_state_and_of_nothing_else(state: str) -> None:
    """It changes with the state, and comes back with it."""
    generator = random if state == "random" else np.random
    draw, get, put = (
        (random.random, random.getstate, random.setstate)
        if generator is random
        else (np.random.rand, np.random.get_state, np.random.set_state)
    )
    before, at_first = get(), ambient_state.versions(())[state]
    assert at_first == ambient_state.versions(())[state]
    draw()
    assert at_first != ambient_state.versions(())[state]
    put(before)  # type: ignore[arg-type]
    assert at_first == ambient_state.versions(())[state]
