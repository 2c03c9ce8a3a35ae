"""The same records on a server; the tests are imported."""

from tests.gateway.test_gateway_tokens import (
    test_a_revoked_token_is_refused_at_once,
    test_a_rotated_token_works_through_its_grace,
    test_a_rotation_prolongs_nothing_but_itself,
    test_a_scope_implies_no_other,
    test_a_token_ends_when_it_says,
    test_a_token_says_who_holds_it,
    test_no_grace_is_a_grace,
    test_only_a_good_token_is_rotated,
    test_strangers_learn_nothing,
    test_the_tokens_of_a_closed_tenant_are_refused,
    test_tokens_of_others_are_not_there,
    test_what_is_no_token,
    tokens,
)
