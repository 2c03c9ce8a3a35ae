"""Small runtimes, for each way of enforcing the limits of a jail as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy
from cenote_security.walls.cgroups import CgroupSite, JailGroup, find_site

StartRuntime = Callable[..., PythonRuntime]


@pytest.fixture
def site() -> CgroupSite:
    """Runs only where this machine allows control groups."""
    try:
        return find_site()
    except OSError as error:
        pytest.skip(f"no control groups here: {error}")


@pytest.fixture(params=["cgroup", "watchdog"])
def mode(request: pytest.FixtureRequest) -> str:
    """Each way, for rules that apply to both."""
    if request.param == "cgroup":
        request.getfixturevalue("site")
    return str(request.param)


@pytest.fixture
def start_runtime() -> Iterator[StartRuntime]:
    """start_runtime(**policy): a small runtime that is closed with the test; its cells have a time limit."""
    made: list[PythonRuntime] = []

    def start(**policy: Any) -> PythonRuntime:
        small = {"memory": "96MiB", "disk": "64MiB", "cell_timeout": 100, "preload": ()}
        made.append(PythonRuntime(sandbox=SandboxPolicy(**{**small, **policy})))
        return made[-1]

    yield start
    for runtime in made:
        runtime.close()


def group_of(runtime: PythonRuntime) -> JailGroup:
    """The control group of the jail that is running."""
    supervisor = runtime.core.backend.supervisor
    assert supervisor is not None
    group = supervisor._account._group  # type: ignore[attr-defined]
    assert isinstance(group, JailGroup)
    return group
