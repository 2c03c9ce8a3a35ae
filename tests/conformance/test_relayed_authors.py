"""Several authors through a gateway's relay, a part of each suite; the tests are imported."""

from tests.shared_runtime.test_attachments import (
    test_closing_an_attachment_ends_nothing_else,
    test_everybody_hears_once_that_the_jail_is_gone,
    test_steps_are_counted_together_and_attributed,
    test_the_async_face,
)
from tests.shared_runtime.test_private_names import (
    own,
    test_host_objects_of_two_authors,
    test_injections_are_the_authors,
)
from tests.shared_runtime.test_rebindings import test_a_name_that_was_rebound
from tests.shared_runtime.test_taking_turns import (
    test_cells_run_in_the_order_in_which_they_came,
    test_status_is_answered_while_a_cell_runs,
)
