"""A runtime for tests that carry parts of a state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    """Its zygote, shared within a process, imports numpy only."""
    with PythonRuntime(sandbox=SandboxPolicy(preload=("numpy",))) as made:
        yield made
