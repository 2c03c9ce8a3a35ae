"""Patches of steps from before a fork or a sleep, on a platform; the tests are imported."""

import pytest
from tests.soundness.test_inherited_histories import (
    Client,
    closing,
    test_steps_before_a_fork_and_a_sleep,
    test_values_put_in_before_a_fork_and_a_sleep,
)


@pytest.fixture
def client() -> Client:
    return Client(None)
