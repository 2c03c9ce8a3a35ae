"""Cells that are checked first, on a platform; the tests are imported."""

from tests.runtime.test_check_first import (
    test_a_refused_cell_calls_nothing_and_is_on_record,
    test_calls_that_may_fit_are_made,
    test_it_is_off_by_default,
)
