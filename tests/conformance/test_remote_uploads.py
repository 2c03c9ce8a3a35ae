"""Patches that begin before a client has written a file, of a remote runtime: see the tests themselves."""

from tests.soundness.test_uploaded_files import (
    runtime,
    test_a_removed_file_is_removed_again,
    test_an_upload_is_a_step_that_is_done_again,
    test_one_that_never_was_and_is_taken_back,
)
