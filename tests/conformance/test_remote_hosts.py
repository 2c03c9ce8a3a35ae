"""Host functions and objects of a remote runtime; the tests are imported."""

from tests.runtime.test_hosts import (
    test_a_fork_in_the_jail_cannot_call,
    test_arguments_are_loaded_safely,
    test_async_functions_run_on_the_awaiting_loop,
    test_async_host_functions,
    test_errors_are_data,
    test_errors_of_any_text,
    test_exception_groups,
    test_host_calls_end_with_their_cell,
    test_host_calls_end_with_their_jail,
    test_host_objects,
    test_host_objects_with_hundreds_of_methods,
    test_it_runs_in_the_client,
    test_large_exception_groups,
    test_many_calls_at_once,
    test_results_that_cannot_travel,
    test_threads_of_a_cell_call_at_once,
)
from tests.runtime.test_results_as_data import (
    test_a_class_is_sent_whole_only_where_it_is_said,
    test_arguments_of_such_classes,
)
