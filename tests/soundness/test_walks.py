"""Sequences of cells, changes by clients, patches, their reversal and rollbacks: each state is that of a full run."""

from __future__ import annotations

import random

import pytest
from tests.soundness.walk import Walk


@pytest.mark.parametrize("seed", range(3))
def test_a_walk_is_where_a_full_run_would_be(seed: int) -> None:
    """Each is reproduced by its number, as far as the same states are kept."""
    Walk(random.Random(seed).randrange).go(10)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_walks_are_where_full_runs_would_be() -> None:
    """Longer ones."""
    for seed in range(1000, 2000):
        Walk(random.Random(seed).randrange).go(25)
