"""Files, values and states of a runtime of a platform, over HTTP; the tests are imported."""

from tests.files.test_runtime_files import (
    test_bytes_come_back_as_they_went,
    test_delete,
    test_files_wait_for_the_running_cell,
)
from tests.snapshots.test_rollback import (
    test_a_lock_goes_with_its_file,
    test_a_pipe_ends_though_a_snapshot_had_it,
    test_labels,
    test_locks_on_files,
    test_objects_are_the_very_same,
    test_the_place_in_a_file,
    test_there_and_back,
    test_thinning,
    test_what_is_no_target,
    test_what_is_not_kept,
)
