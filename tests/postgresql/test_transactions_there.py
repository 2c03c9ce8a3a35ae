"""The same records on a server; the tests are imported."""

from tests.gateway.test_gateway_database import (
    test_a_failed_transaction_leaves_nothing,
    test_after_the_end_it_is_unavailable,
    test_threads_and_other_connections_wait_for_each_other,
)
