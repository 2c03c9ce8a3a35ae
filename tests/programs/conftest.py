"""One runtime per level for the tests of programs: a test that ends it, or rolls it back, makes its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.runtime import PythonRuntime
from cenote_security.errors import IsolationUnavailableError
from cenote_security.policy import Isolation, SandboxPolicy


def _runtime(level: Isolation) -> Iterator[PythonRuntime]:
    runtime = PythonRuntime(sandbox=SandboxPolicy(isolation=level, preload=(), processes=40, cpus=2))
    try:
        runtime.execute("x = 1")
    except IsolationUnavailableError as error:
        pytest.skip(str(error))
    yield runtime
    runtime.close()


@pytest.fixture(scope="package")
def strict() -> Iterator[PythonRuntime]:
    yield from _runtime("strict")


@pytest.fixture(scope="package")
def landlock() -> Iterator[PythonRuntime]:
    yield from _runtime("landlock")


@pytest.fixture(scope="package")
def gvisor() -> Iterator[PythonRuntime]:
    yield from _runtime("gvisor")


@pytest.fixture(params=["strict", "landlock", "gvisor"])
def anywhere(request: pytest.FixtureRequest) -> PythonRuntime:
    """At each level with isolation."""
    runtime: PythonRuntime = request.getfixturevalue(request.param)
    return runtime


@pytest.fixture(params=["strict", "landlock"])
def walled(request: pytest.FixtureRequest) -> PythonRuntime:
    """At each level that confines signals to a Landlock domain. It has a worker, which an idle runtime lacks."""
    runtime: PythonRuntime = request.getfixturevalue(request.param)
    assert "1" == runtime.execute("x").value
    return runtime
