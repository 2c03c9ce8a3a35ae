"""Sequences of cells, changes by clients, patches, reverts and rollbacks: each state equals that of a full run."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from tests.support.soundness.stored_walk import StoredWalk
from tests.support.soundness.walk import Walk


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_walk_is_where_a_full_run_would_be(seed: int) -> None:
    """Each is reproduced by its number, as far as the same states are stored."""
    Walk(random.Random(seed).randrange).go(10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_walk_of_a_runtime_that_sleeps_is_where_a_full_run_would_be(seed: int, tmp_path: Path) -> None:
    """Its patches begin with checkpoints, since a hibernated jail has lost its states in memory."""
    StoredWalk(random.Random(seed).randrange, tmp_path).go(10)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_patches_of_runtimes_that_sleep_begin_with_checkpoints(tmp_path: Path) -> None:
    began = Counter[str]()
    for seed in range(1000, 1500):
        walk = StoredWalk(random.Random(seed).randrange, tmp_path / str(seed))
        walk.go(25)
        began += walk.began
    assert began["checkpoint"] > began.total() / 10, began


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_walks_are_where_full_runs_would_be() -> None:
    """Longer ones."""
    for seed in range(1000, 2000):
        Walk(random.Random(seed).randrange).go(25)
