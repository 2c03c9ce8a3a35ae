"""The same records on a server; the tests are imported."""

from tests.gateway.test_runtime_directory import (
    hostile,
    runtimes,
    test_a_name_is_no_id,
    test_a_runtime_is_found_by_name_and_by_id,
    test_names_that_are_none,
    test_two_tenants_may_use_one_name,
    test_what_another_tenant_has_is_not_there,
)
