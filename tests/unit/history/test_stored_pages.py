"""Parts of a stored history, read without the rest of it: the same as in the whole."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord, StepStatus
from cenote_worker.history.store import MOST_TAIL, StoredHistories
from cenote_worker.history.store_writer import open_history

STATUSES: Final[tuple[StepStatus, ...]] = ("ok", "failed", "rolled_back", "lost", "refused")


@pytest.mark.parametrize("seed", range(8))
def test_steps_and_head_are_those_of_the_whole(tmp_path: Path, seed: int) -> None:
    """With steps that were undone, lost and refused, and rollbacks to any state."""
    chance = random.Random(seed)
    place = tmp_path / "some.sqlite"
    with closing(open_history(place, "shop")) as history:
        for number in range(1, chance.randrange(1, 40)):
            history.ended(StepRecord(number=number, code=f"x = {number}", status=chance.choice(STATUSES)))
            if chance.random() < 0.3:
                history.moved(chance.randrange(number + 1), "rollback")
    whole = History()
    with closing(StoredHistories.at(place)) as stored:
        whole.read(stored.events("shop"))
        records = list(whole.tree)
        assert (whole.tree.head, len(records)) == (stored.head("shop"), stored.step_count("shop"))
        for begin in range(0, len(records), 7):
            assert records[begin : begin + 7] == stored.steps("shop", begin, begin + 7)
        assert [] == stored.steps("shop", len(records), len(records) + 7)
        assert whole.size == stored.size("shop")


def test_the_head_of_a_history_that_goes_on_long_after_its_last_step(tmp_path: Path) -> None:
    """It is not looked for."""
    place = tmp_path / "some.sqlite"
    with closing(open_history(place, "shop")) as history:
        history.ended(StepRecord(number=1))
        for number in range(2, MOST_TAIL + 3):
            history.ended(StepRecord(number=number, status="refused"))
    with closing(StoredHistories.at(place)) as stored:
        assert None is stored.head("shop")
