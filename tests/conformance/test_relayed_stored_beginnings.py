"""Patches that begin at a checkpoint, through the gateway of a platform; the tests are imported."""

from __future__ import annotations

from secrets import token_hex

import pytest
from tests.soundness.test_stored_beginnings import (
    Counted,
    runtime,
    test_it_is_begun_with_behind_a_sleep,
    test_steps_before_it_are_not_run_again,
    test_the_state_that_a_patch_has_made_is_stored_and_begun_with_in_turn,
    test_what_fails_leaves_the_objects_that_there_were,
)


@pytest.fixture
def counted() -> Counted:
    return Counted(None, name=f"r-{token_hex(8)}", durable=True)
