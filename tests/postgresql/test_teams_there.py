"""The same records on a server; the tests are imported."""

from tests.orchestrator.conftest import team
from tests.orchestrator.test_ledger import (
    test_a_team_is_its_tenants,
    test_a_team_that_was_deleted,
    test_notes_and_news_in_one_stroke,
    test_of_runs_that_have_ended_the_newest_are_kept,
    test_old_news_are_dropped,
    test_one_run_after_the_other,
    test_runs_come_in_order_and_once_per_key,
    test_the_later_of_two_writes,
)
