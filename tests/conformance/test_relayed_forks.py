"""Forks and merges of runtimes on a platform; the tests are imported."""

from tests.forks.conftest import by_value, closing, fork, make
from tests.forks.test_attempts import test_the_best_branch_is_kept
from tests.forks.test_branching import (
    test_a_branch_goes_on_with_history_and_snapshots,
    test_a_branch_that_is_lost_takes_nobody_along,
    test_a_fork_of_a_fork,
    test_a_fork_of_an_earlier_state,
    test_branches_begin_with_the_state_and_go_their_own_ways,
    test_counts_and_runtimes_that_cannot_fork,
    test_random_numbers,
    test_rules_know_in_a_branch_what_names_mean,
    test_the_async_face,
    test_the_clients_functions_are_offered_in_branches,
    test_what_cannot_come_along_is_named_before_anything_starts,
)
from tests.forks.test_merging import (
    test_conflicts_are_refused_or_decided,
    test_only_branches_of_this_runtime,
    test_what_a_branch_has_changed_comes_back,
    test_what_cannot_be_given_away_is_left,
)
from tests.rl.test_episodes import environment, test_an_episode, test_reset_brings_the_beginning_back
