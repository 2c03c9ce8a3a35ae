"""Tests of `cenote_worker.jail.libraries.matplotlib_figures`: the backend that stored states name."""

from __future__ import annotations

import pytest

from cenote_worker.jail.libraries.matplotlib_figures import present_backend

PRESENT = "module://cenote_worker.jail.libraries.matplotlib_backend"


@pytest.mark.parametrize(
    ("expected", "stored"),
    [
        (PRESENT, "module://cenote_worker.in_jail.figure_backend"),
        (PRESENT, PRESENT),
        ("agg", "agg"),
        (None, None),
    ],
)
def test_a_stored_backend_is_found_where_it_is_now(expected: object, stored: object) -> None:
    """States that version 0.1.0 has stored name the jail's backend by its former module."""
    assert expected == present_backend(stored)
