"""Runtimes as their host sees them."""

from __future__ import annotations

import pytest

from cenote.runtime import PythonRuntime
from cenote_worker.runtime.runtime import HostedRuntime


@pytest.fixture
def hosted(runtime: PythonRuntime) -> HostedRuntime:
    """Of the test's own runtime."""
    assert isinstance(runtime.core.backend, HostedRuntime)
    return runtime.core.backend
