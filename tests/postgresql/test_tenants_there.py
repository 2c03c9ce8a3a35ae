"""The same records on a server; the tests are imported."""

from tests.gateway.test_tenants import (
    test_a_closed_tenant_keeps_its_name,
    test_a_tenant_is_kept,
    test_an_unknown_tenant,
    test_weights_are_positive_and_bounded,
    test_weights_at_their_bounds,
)
