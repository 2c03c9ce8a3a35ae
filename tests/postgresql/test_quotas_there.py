"""The same records on a server; the tests are imported."""

from tests.gateway.test_quota_book import (
    test_a_closed_database_lets_nobody_in,
    test_limits_are_kept_and_have_defaults,
    test_threads_do_not_get_past_a_limit,
    test_what_is_no_limit,
    test_what_is_no_more_is_not_counted,
    test_what_lasts_is_counted_by_the_next_gateway,
)
