"""The same records on a server; the tests are imported."""

from tests.jobs.test_job_ledger import (
    test_a_task_that_takes_its_process_along_each_time,
    test_bounds_of_what_is_kept,
    test_cancelled_before_anybody_works_on_it,
    test_given_back_while_others_are_done,
    test_stuck,
    test_wanted_again_before_it_was_cancelled,
    test_what_a_process_leaves_is_done_again_and_says_so,
    test_what_did_not_begin_is_no_attempt,
)
