"""When a snapshot is dropped for the sake of the running cell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.zygote.warden.snapshot_cost_monitor import (
    COPY_SECONDS,
    EARLIEST,
    GRACE_SECONDS,
    MOST,
    ORDINARY,
    SHARE,
    SWEPT,
    PageSharing,
    ProcessSample,
    SnapshotTax,
)

GRACE = int(GRACE_SECONDS / COPY_SECONDS)
HELD = 1_000_000


def seen(elapsed: float, faults: int, resident: int = HELD) -> ProcessSample:
    return ProcessSample(elapsed=elapsed, faults=faults, resident=resident)


def copied(pages: int, exposed: int = 0) -> PageSharing:
    return PageSharing(copied=pages, exposed=exposed)


@pytest.fixture
def tax() -> SnapshotTax:
    return SnapshotTax(seen(0, 500))


def test_a_sweep_in_place_gives_the_snapshot_up(tax: SnapshotTax) -> None:
    """Faults without growth, and fewer pages shared: they were copied."""
    assert "check" == tax.see(seen(0.01, 500 + GRACE + 1))
    assert tax.is_too_much(copied(GRACE + 1))


def test_the_grace_is_everybody_s(tax: SnapshotTax) -> None:
    """Exactly that many pages may be copied, however short the cell, if there is not much more to copy."""
    tax.see(seen(0.001, 500 + GRACE))
    assert not tax.is_too_much(copied(GRACE, exposed=GRACE))
    tax.see(seen(0.001, 500 + GRACE + 1))
    assert tax.is_too_much(copied(GRACE + 1))


def test_grace_is_not_waited_for_where_it_will_not_do(tax: SnapshotTax) -> None:
    """A cell that has mostly copied, and has more than the grace left to copy in its present area."""
    elapsed = 0.01
    most = ORDINARY + int(MOST * elapsed / COPY_SECONDS)
    assert "check" == tax.see(seen(elapsed, 500 + most))
    assert not tax.is_too_much(copied(most, exposed=GRACE + 1))
    tax.see(seen(elapsed, 500 + most + 1))
    assert tax.is_too_much(copied(most + 1, exposed=GRACE + 1))


def test_a_sweep_has_begun(tax: SnapshotTax) -> None:
    """In a large area, most of which is still left. Pages written around each cell lie elsewhere."""
    few = int(SWEPT / COPY_SECONDS)
    assert "keep" == tax.see(seen(0.002, 500 + ORDINARY))
    assert "check" == tax.see(seen(0.002, 500 + ORDINARY + int(EARLIEST / COPY_SECONDS) + 1))
    assert not tax.is_too_much(PageSharing(copied=few, exposed=HELD, swept=few))
    assert tax.is_too_much(PageSharing(copied=few + 1, exposed=HELD, swept=few + 1))


def test_a_sweep_that_is_no_large_part_of_a_cell(tax: SnapshotTax) -> None:
    """A fifth of its time, as before."""
    share = int(SHARE * 0.04 / COPY_SECONDS)
    tax.see(seen(0.04, 500 + ORDINARY + share))
    assert not tax.is_too_much(PageSharing(copied=share, exposed=HELD, swept=share))
    assert tax.is_too_much(PageSharing(copied=share + 1, exposed=HELD, swept=share + 1))


def test_what_is_written_to_around_each_cell_says_nothing(tax: SnapshotTax) -> None:
    """A very short cell may do nothing else."""
    assert "keep" == tax.see(seen(0.0002, 500 + ORDINARY + 1))


def test_a_long_cell_may_copy_more(tax: SnapshotTax) -> None:
    """A fifth of its time, and not a page more."""
    share = int(SHARE * 10 / COPY_SECONDS)
    assert "keep" == tax.see(seen(10, 500 + share))
    assert "check" == tax.see(seen(10, 500 + share + 2))
    assert tax.is_too_much(copied(share + 2))


def test_new_memory_is_no_copy(tax: SnapshotTax) -> None:
    """A cell that fills an array of its own pays no tax, whatever the size."""
    assert "keep" == tax.see(seen(0.01, 500 + 100 * GRACE, HELD + 100 * GRACE))


def test_new_memory_before_a_sweep_does_not_hide_it(tax: SnapshotTax) -> None:
    """Huge pages: few faults, much growth. Each interval between two samples is judged by itself."""
    assert "keep" == tax.see(seen(0.01, 520, 2 * HELD))
    assert "check" == tax.see(seen(0.02, 520 + 2 * GRACE, 2 * HELD))


def test_memory_given_back_and_asked_for_again_is_cleared(tax: SnapshotTax) -> None:
    """None of the copy's pages was copied. The next check comes when twice as much is suspected."""
    assert "check" == tax.see(seen(0.01, 500 + 2 * GRACE))
    assert not tax.is_too_much(copied(0))
    assert "keep" == tax.see(seen(0.011, 500 + 4 * GRACE))
    assert "check" == tax.see(seen(0.012, 500 + 4 * GRACE + 1))


def test_no_more_is_believed_than_there_were_faults(tax: SnapshotTax) -> None:
    """New memory in the place of freed memory looks as if it had been copied, and costs next to nothing."""
    assert "check" == tax.see(seen(0.01, 500 + GRACE + 1, HELD // 2))
    assert "keep" == tax.see(seen(1.0, 500 + GRACE + 2, HELD // 2))
    assert not tax.is_too_much(copied(HELD // 2, exposed=HELD // 2))


@given(copies=st.lists(st.integers(0, 3000), max_size=50))
def test_no_cell_pays_more_than_its_share(copies: list[int]) -> None:
    """A cell that only copies never pays more than grace and share."""
    tax, faults = SnapshotTax(seen(0, 0)), 0
    for number, pages in enumerate(copies, start=1):
        elapsed, faults = number / 1000, faults + pages
        given_up = tax.see(seen(elapsed, faults)) == "check" and tax.is_too_much(
            copied(faults, HELD - faults)
        )
        assert given_up or faults * COPY_SECONDS <= max(GRACE_SECONDS, SHARE * elapsed)
        if given_up:
            return
