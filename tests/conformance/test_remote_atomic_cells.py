"""Atomic cells of a remote runtime; the tests are imported."""

from tests.snapshots.test_atomic_cells import (
    test_a_cell_that_runs_out_of_time,
    test_a_failing_cell_leaves_nothing,
    test_a_state_that_could_not_be_kept,
    test_again_and_again,
    test_cells_that_wait_come_after_the_return,
    test_success_and_what_is_no_choice,
    test_what_was_injected_since_the_last_cell_stays,
)
