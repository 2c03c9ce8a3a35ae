"""Cells of a runtime of a platform, over HTTP; the tests are imported."""

from tests.runtime.test_cell_programs import (
    test_a_file_that_ends_too_soon_has_nothing_to_do_with_a_terminal,
    test_a_program_with_a_parser_of_arguments_gets_none,
    test_python_is_the_one_that_the_cell_is_in,
)
from tests.runtime.test_runtime_cells import (
    test_a_cell_that_ignores_the_interrupt_is_killed,
    test_a_dying_process,
    test_a_name_that_python_spells_otherwise,
    test_an_error_with_a_place_that_cannot_be,
    test_bad_arguments,
    test_builtins_that_a_cell_has_replaced,
    test_callers_queue,
    test_code_that_cannot_be_compiled_for_want_of_memory,
    test_endless_output_is_bounded,
    test_failing_code_is_a_field,
    test_large_code,
    test_memory_limit,
    test_output_in_order,
    test_output_streams_while_the_cell_runs,
    test_rich_outputs,
    test_runtimes_do_not_share_a_namespace,
    test_slow_listeners_slow_the_cell_not_the_memory,
    test_state_persists_between_cells,
    test_timeout_keeps_the_namespace,
    test_top_level_await_and_asyncio_run,
)
