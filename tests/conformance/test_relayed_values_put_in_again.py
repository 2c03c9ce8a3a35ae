"""Patches that begin before a client has put in a value, on a whole platform, which has branches."""

from tests.soundness.test_values_put_in_again import runtime, test_in_a_branch_and_behind_a_rollback
