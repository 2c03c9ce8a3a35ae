"""Remote runtimes through a gateway's relay, a part of each suite; the tests are imported."""

from tests.files.test_runtime_files import test_bytes_come_back_as_they_went
from tests.runtime.test_faces import (
    test_cancelling_an_execute_interrupts_the_cell,
    test_the_async_face,
)
from tests.runtime.test_hosts import (
    test_async_host_functions,
    test_errors_are_data,
    test_errors_of_any_text,
    test_exception_groups,
    test_host_calls_end_with_their_cell,
    test_it_runs_in_the_client,
    test_many_calls_at_once,
)
from tests.runtime.test_runtime_cells import (
    test_a_dying_process,
    test_closed_runtimes_say_so,
    test_failing_code_is_a_field,
    test_large_code,
    test_output_in_order,
    test_output_streams_while_the_cell_runs,
    test_slow_listeners_slow_the_cell_not_the_memory,
    test_state_persists_between_cells,
    test_status_while_the_lock_is_held,
    test_timeout_keeps_the_namespace,
)
from tests.runtime.test_values import (
    test_a_reference_outlives_its_maker,
    test_frames_and_arrays,
    test_injected_values_survive_the_loss_of_a_jail,
    test_retrieve_refuses_what_it_does_not_know,
    test_round_trip,
    test_sharing_by_reference,
)
from tests.snapshots.test_rollback import (
    test_labels as test_labels_of_snapshots,
)
from tests.snapshots.test_rollback import (
    test_there_and_back,
    test_what_is_not_kept,
)
