"""Patches of a remote runtime whose initial state, or whole history, is no longer stored; the tests are imported."""

from tests.soundness.test_second_start import (
    forgetful,
    runtime,
    test_going_back_to_a_start_that_is_gone_does_nothing,
    test_what_fails_beside_it_leaves_it_as_it_was,
    test_what_fails_there_leaves_everything_as_it_was,
    test_what_was_put_in_since_is_not_the_start,
    test_where_no_state_can_be_kept_the_patch_is_applied_beside_it,
    test_without_the_start_the_history_is_begun_again,
)
