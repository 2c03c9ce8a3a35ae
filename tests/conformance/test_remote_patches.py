"""Patches of a remote runtime; the tests are imported."""

from tests.soundness.test_patching_runtimes import (
    runtime,
    test_a_failure_in_the_middle_leaves_everything_as_it_was,
    test_a_patch_brings_in_nothing_that_the_rules_refuse,
    test_a_patch_is_taken_back_and_what_came_after_it_stays,
    test_a_plan_is_for_the_state_that_it_was_made_in,
    test_authors_who_are_attached_cannot_change_the_history,
    test_cancelled_between_two_steps_it_puts_everything_back,
    test_files_are_those_of_a_full_run,
    test_only_what_follows_from_a_patch_is_run_again,
    test_recorded_answers_stand_for_equal_host_calls,
    test_the_asynchronous_face_awaits_changes,
    test_the_head_goes_where_the_state_goes,
    test_what_a_client_has_put_in_stands_or_is_refused,
)
