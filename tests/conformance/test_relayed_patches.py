"""Patches and atomic cells through a gateway's relay, a part of each suite; the tests are imported."""

from tests.snapshots.test_atomic_cells import test_cells_that_wait_come_after_the_return
from tests.soundness.test_patching_runtimes import (
    runtime,
    test_a_failure_in_the_middle_leaves_everything_as_it_was,
    test_a_patch_is_taken_back_and_what_came_after_it_stays,
    test_recorded_answers_stand_for_equal_host_calls,
)
