"""Artifacts of a remote runtime, and verified slices of it; the tests are imported."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.artifacts.test_artifacts_in_jail import (
    run,
    runtime,
    test_a_build_is_taken_back,
    test_a_module_and_its_tests_uploaded_again_and_again,
    test_a_patch_of_one_function_runs_the_tests_that_use_it,
    test_a_step_that_edits_a_file_in_use,
    test_a_test_that_fails_leaves_all_as_it_was,
    test_an_effect_outside_is_not_repeated_by_a_build,
    test_the_asynchronous_face_builds_too,
    test_what_cannot_be_done_is_refused,
)
from tests.examples.test_examples import SHOWN, run_example
from tests.harness.test_state_of_runtimes import (
    test_a_program_goes_through_files_that_a_client_has_written,
    test_a_slice_that_cannot_be_verified_says_why,
    test_the_program_of_a_slice_is_verified,
)


@pytest.mark.slow
def test_the_portfolio_runs_unchanged(tmp_path: Path) -> None:
    """Only an address in the environment differs, and it is not visible in the results."""
    output = run_example("portfolio", tmp_path)
    assert [] == [line for line in SHOWN["portfolio"] if line not in output], output
