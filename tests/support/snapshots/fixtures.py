"""Runtimes for tests of snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from tests.places import Place

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

MakeRuntime = Callable[..., PythonRuntime]


@pytest.fixture
def make_runtime(where: Place) -> Iterator[MakeRuntime]:
    """Makes runtimes whose zygotes import numpy only; closes them all."""
    with ExitStack() as made:

        def make(**settings: Any) -> PythonRuntime:
            policy = SandboxPolicy(**{"preload": ("numpy",), **settings})
            runtime: PythonRuntime = made.enter_context(closing(where.make(sandbox=policy)))
            return runtime

        yield make


@pytest.fixture
def runtime(make_runtime: MakeRuntime) -> PythonRuntime:
    return make_runtime()
