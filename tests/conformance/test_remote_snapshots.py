"""Snapshots of a remote runtime; the tests are imported."""

from tests.snapshots.test_rollback import (
    test_a_pipe_ends_though_a_snapshot_had_it,
    test_an_injection_is_part_of_the_state,
    test_labels,
    test_objects_are_the_very_same,
    test_only_the_owner_rolls_back,
    test_the_async_face,
    test_there_and_back,
    test_thinning,
    test_what_cannot_come_along_is_named,
    test_what_is_no_target,
    test_what_is_not_kept,
)
from tests.snapshots.test_take_over import (
    test_a_cell_that_ignores_its_interrupt,
    test_what_the_cell_had_started_ends_with_it,
)
