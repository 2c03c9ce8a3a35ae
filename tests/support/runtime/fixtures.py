"""Real jails for the tests of runtimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.places import Place

from cenote.runtime import PythonRuntime


@pytest.fixture
def make_runtime(where: Place) -> Iterator[Callable[..., PythonRuntime]]:
    """Makes runtimes that are closed after the test. Over HTTP they have the methods that the interface offers."""
    made: list[PythonRuntime] = []

    def make(**arguments: Any) -> PythonRuntime:
        runtime: PythonRuntime = where.make(**arguments)
        made.append(runtime)
        return runtime

    yield make
    for runtime in made:
        runtime.close()


@pytest.fixture
def runtime(make_runtime: Callable[..., PythonRuntime]) -> PythonRuntime:
    """One runtime with the default policy."""
    return make_runtime()
