"""Audited patches of a remote runtime; the tests are imported."""

from collections.abc import Callable

import pytest
from tests.conformance.conftest import Where
from tests.soundness.test_audited_patches import (
    reserved,
    runtime,
    test_a_build_is_audited_as_patches_are,
    test_a_history_that_cannot_begin_again_says_so,
    test_a_sound_patch_passes_and_nothing_outside_is_done_again,
    test_an_unsound_patch_raises_an_alarm_and_can_be_taken_back,
    test_what_a_client_has_put_in_since_is_there_too,
    test_what_changes_with_each_run_is_no_alarm,
)

from cenote.runtime import PythonRuntime
from cenote_worker.runtime.runtime import HostedRuntime


@pytest.fixture
def hosted_by(platform: Where) -> Callable[[PythonRuntime], HostedRuntime]:
    return lambda held: platform.hosted(held.core.backend._id)  # type: ignore[attr-defined]
