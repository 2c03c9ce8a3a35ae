"""Remote runtimes over a platform in this process, and a connection between them that can be cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.remote.cable import Cable
from tests.support.remote.small_platform import TOKEN, SmallPlatform

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

SMALL = SandboxPolicy(preload=())


@pytest.fixture(scope="session")
def platform() -> Iterator[SmallPlatform]:
    """One for all tests of this process that do not change it."""
    platform = SmallPlatform().start()
    yield platform
    platform.close()


@pytest.fixture
def own_platform() -> Iterator[SmallPlatform]:
    """For a test that ends it, or cuts its cables."""
    platform = SmallPlatform().start()
    yield platform
    platform.close()


@pytest.fixture
def cable(own_platform: SmallPlatform) -> Iterator[Cable]:
    """Between clients of `own_platform` and the server of its runtimes; the gateway has another one."""
    cable = Cable(own_platform.runtimes_address)
    own_platform.runtimes_address = cable.address
    yield cable
    cable.close()


@pytest.fixture
def connect() -> Iterator[Callable[..., PythonRuntime]]:
    """Creates runtimes on a platform, with a small jail, closed after the test."""
    made: list[PythonRuntime] = []

    def make(platform: SmallPlatform, **arguments: Any) -> PythonRuntime:
        made.append(PythonRuntime(address=platform.address, token=TOKEN, **{"sandbox": SMALL, **arguments}))
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()
