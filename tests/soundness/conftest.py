"""Runtimes as their host sees them."""

from __future__ import annotations

import pytest
from tests.places import Place

from cenote.runtime import PythonRuntime
from cenote_worker.runtime.runtime import HostedRuntime


@pytest.fixture
def hosted(runtime: PythonRuntime, where: Place) -> HostedRuntime:
    """Of the test's own runtime."""
    return where.hosted(runtime)
