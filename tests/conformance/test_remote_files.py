"""Working directories of a remote runtime; the tests are imported."""

from tests.files.test_runtime_files import (
    test_a_cancelled_read_leaves_no_descriptor,
    test_a_new_jail_has_an_empty_directory,
    test_a_part_of_a_file,
    test_bytes_come_back_as_they_went,
    test_delete,
    test_files_wait_for_the_running_cell,
    test_missing_folders_are_made_and_files_kept,
    test_the_async_face,
    test_upload_and_download,
    test_usage_is_checked_before_the_jail,
    test_what_a_cell_made_is_listed,
)
