"""Patches that begin before a client has written a file, of a remote runtime; the tests are imported."""

from tests.soundness.test_uploaded_files import (
    runtime,
    test_a_removed_file_is_removed_again,
    test_an_upload_is_a_step_that_is_done_again,
    test_one_that_never_was_and_is_taken_back,
    test_what_is_too_much_to_be_kept_is_named,
    test_what_was_there_before_the_first_step_is_there_in_a_second_jail,
)
