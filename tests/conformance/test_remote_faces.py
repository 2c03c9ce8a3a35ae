"""The sync and the async API of a remote runtime; the tests are imported."""

from tests.runtime.test_faces import (
    test_an_on_output_that_is_no_plain_function,
    test_cancelling_an_execute_interrupts_the_cell,
    test_many_runtimes_at_once,
    test_the_async_face,
)
