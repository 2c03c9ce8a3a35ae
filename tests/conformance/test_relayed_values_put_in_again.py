"""The same on a whole platform, which has branches: see the tests themselves."""

from tests.soundness.test_values_put_in_again import runtime, test_in_a_branch_and_behind_a_rollback
