"""Arrays overwritten with themselves."""

from __future__ import annotations

import numpy as np
import pytest

from cenote_worker.jail.snapshots.cost_forecast import unshare

ARRAYS = (
    np.array([1.5, -0.0, np.nan, np.inf]),
    np.arange(12, dtype="i2").reshape(3, 4).T,
    np.array(["a", "long"]),
    np.array(["2001-01-01"], dtype="M8[D]"),
    np.array([[1], object()], dtype=object),
    np.arange(10)[::2],
    np.array(7),
    np.zeros(0),
)


@pytest.mark.parametrize("array", ARRAYS)
def test_nothing_changes(array: np.ndarray) -> None:
    """Bit by bit; arrays that cannot be overwritten like that are left alone."""
    before = array.tobytes()
    unshare(array)
    assert before == array.tobytes()


def test_what_may_not_be_written_to() -> None:
    array = np.arange(3)
    array.flags.writeable = False
    unshare(array)
    assert [0, 1, 2] == array.tolist()
