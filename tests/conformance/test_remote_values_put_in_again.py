"""Patches that begin before a client has put in a value, of a remote runtime; the tests are imported."""

from tests.soundness.test_values_put_in_again import (
    runtime,
    test_a_class_comes_along_where_there_is_none,
    test_a_reference_is_put_in_again,
    test_behind_a_jail_that_was_lost,
    test_classes_come_along_again,
    test_each_value_is_put_in_where_it_was,
    test_full_runs_have_what_was_put_in,
    test_large_values_are_put_in_again_while_they_are_held,
    test_what_a_client_deletes_is_deleted_again,
    test_what_cannot_be_put_in_again_leaves_everything_as_it_was,
    test_what_stays_with_the_client_is_offered_again,
    test_what_was_put_in_together_goes_on_sharing,
    test_while_its_state_is_kept_as_well,
)
