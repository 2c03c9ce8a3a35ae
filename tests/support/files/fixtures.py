"""Runtimes at each level with isolation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.places import Place

from cenote.runtime import PythonRuntime
from cenote_security.errors import IsolationUnavailableError
from cenote_security.policy import SandboxPolicy


@pytest.fixture
def make_runtime(where: Place) -> Iterator[Callable[..., PythonRuntime]]:
    """Makes runtimes with `SandboxPolicy(**arguments)`, closed after the test."""
    made: list[PythonRuntime] = []

    def make(**arguments: Any) -> PythonRuntime:
        runtime = where.make(sandbox=SandboxPolicy(**{"preload": (), **arguments}))
        made.append(runtime)
        try:
            assert runtime.isolation
        except IsolationUnavailableError as error:
            pytest.skip(str(error))
        return runtime

    yield make
    for runtime in made:
        runtime.close()


@pytest.fixture(params=["strict", "landlock"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def runtime(level: str, make_runtime: Callable[..., PythonRuntime]) -> PythonRuntime:
    """A runtime at each level in turn."""
    return make_runtime(isolation=level, snapshots="none")
