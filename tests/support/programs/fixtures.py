"""One runtime per level for the tests of programs: a test that ends it, or rolls it back, makes its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.places import Place

from cenote.runtime import PythonRuntime
from cenote_security.errors import IsolationUnavailableError
from cenote_security.policy import Isolation, SandboxPolicy


class _Runtimes:
    """Of each place and level one."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, Isolation], PythonRuntime] = {}

    def at(self, where: Place, level: Isolation) -> PythonRuntime:
        if (where.name, level) not in self._made:
            sandbox = SandboxPolicy(isolation=level, preload=(), processes=40, cpus=2)
            try:
                made: PythonRuntime = where.make(sandbox=sandbox)
                made.execute("x = 1")
            except IsolationUnavailableError as error:
                pytest.skip(str(error))
            self._made[where.name, level] = made
        return self._made[where.name, level]

    def close(self) -> None:
        for runtime in self._made.values():
            runtime.close()


@pytest.fixture(scope="package")
def _runtimes() -> Iterator[_Runtimes]:
    with closing(_Runtimes()) as runtimes:
        yield runtimes


@pytest.fixture
def strict(where: Place, _runtimes: _Runtimes) -> PythonRuntime:
    return _runtimes.at(where, "strict")


@pytest.fixture
def gvisor(where: Place, _runtimes: _Runtimes) -> PythonRuntime:
    return _runtimes.at(where, "gvisor")


@pytest.fixture(params=["strict", "landlock", "gvisor"])
def anywhere(where: Place, _runtimes: _Runtimes, request: pytest.FixtureRequest) -> PythonRuntime:
    """At each level with isolation."""
    return _runtimes.at(where, request.param)


@pytest.fixture(params=["strict", "landlock"])
def walled(where: Place, _runtimes: _Runtimes, request: pytest.FixtureRequest) -> PythonRuntime:
    """At each level that confines signals to a Landlock domain. It has a worker, which an idle runtime lacks."""
    runtime = _runtimes.at(where, request.param)
    assert "1" == runtime.execute("x").value
    return runtime
