"""Runtimes for tests of snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

MakeRuntime = Callable[..., PythonRuntime]


@pytest.fixture
def make_runtime() -> Iterator[MakeRuntime]:
    """Makes runtimes whose zygotes import numpy only; closes them all."""
    with ExitStack() as made:

        def make(**settings: Any) -> PythonRuntime:
            policy = SandboxPolicy(**{"preload": ("numpy",), **settings})
            return made.enter_context(PythonRuntime(sandbox=policy))

        yield make


@pytest.fixture
def runtime(make_runtime: MakeRuntime) -> PythonRuntime:
    return make_runtime()
