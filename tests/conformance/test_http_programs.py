"""Programs and atomic cells of a runtime of a platform, over HTTP; the tests are imported."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.conformance.http_runtime import HttpRuntime
from tests.programs.test_programs import (
    test_a_cell_that_runs_goes_on_and_keeps_nobody_waiting,
    test_a_list_is_a_program_and_its_arguments,
    test_a_text_is_for_the_shell,
    test_it_shares_the_files_of_cells,
    test_output_is_bounded_and_has_both_ends,
    test_time_over_ends_it,
    test_what_goes_wrong_is_in_the_result,
)
from tests.snapshots.test_atomic_cells import (
    test_a_cell_that_runs_out_of_time,
    test_a_failing_cell_leaves_nothing,
    test_a_state_that_could_not_be_kept,
    test_again_and_again,
    test_success_and_what_is_no_choice,
)


@pytest.fixture
def strict(make_runtime: Callable[..., HttpRuntime]) -> HttpRuntime:
    """The names that the tests of programs use for a runtime."""
    return make_runtime()


anywhere = strict
