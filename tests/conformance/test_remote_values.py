"""Values and references of a remote runtime; the tests are imported."""

from tests.runtime.test_values import (
    test_a_reference_outlives_its_maker,
    test_a_released_reference,
    test_classes_come_with_their_values,
    test_frames_and_arrays,
    test_functions_by_value,
    test_injected_values_survive_the_loss_of_a_jail,
    test_names,
    test_plain_objects_come_back,
    test_retrieve_never_unpickles,
    test_retrieve_refuses_what_it_does_not_know,
    test_round_trip,
    test_sharing_by_reference,
    test_sizes_that_cannot_be,
    test_what_cannot_go_is_refused_with_a_reason,
    test_what_is_injected_together_shares_its_state,
    test_what_is_said_of_variables_is_printable,
)
