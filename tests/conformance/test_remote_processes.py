"""Signals and closing of a remote runtime; the tests are imported."""

from tests.runtime.test_processes import (
    test_closing_twice_and_while_a_cell_runs,
    test_control_c_stops_the_cell_and_the_script,
)
