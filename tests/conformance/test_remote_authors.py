"""Several authors on one remote runtime; the tests are imported.

A jail treats authors alike, local or remote, which other tests cover; these cover what crosses a connection.
"""

from tests.shared_runtime.test_attachments import (
    test_a_failing_step_is_attributed,
    test_a_longest_name_comes_back_whole,
    test_a_new_author_has_lost_nothing,
    test_an_injection_is_for_all,
    test_an_unknown_scope,
    test_changes_are_seen_at_once,
    test_closing_an_attachment_ends_nothing_else,
    test_closing_the_runtime_closes_all,
    test_everybody_hears_once_that_the_jail_is_gone,
    test_names_that_cannot_stand_in_a_sentence,
    test_only_the_owner_resets,
    test_steps_are_counted_together_and_attributed,
    test_the_async_face,
    test_the_calls_of_an_attached_author,
)
from tests.shared_runtime.test_private_names import (
    own,
    test_host_objects_of_two_authors,
    test_injections_are_the_authors,
    test_injections_survive_the_jail,
    test_nobody_else_sees_them,
    test_they_wait_for_the_author,
    test_values_out_of_it,
)
from tests.shared_runtime.test_rebindings import (
    test_a_name_that_was_rebound,
    test_a_private_author_binds_a_common_name,
    test_deleted_and_replaced_from_outside,
)
from tests.shared_runtime.test_taking_turns import (
    test_a_question_does_not_wait_for_others_cells,
    test_an_interrupt_does_not_reach_what_waits,
    test_cancelling_a_call_stops_its_cell_alone,
    test_cells_run_in_the_order_in_which_they_came,
    test_status_is_answered_while_a_cell_runs,
)
