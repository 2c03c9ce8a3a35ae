"""One arena per level and test process: starting a jail is cheap, starting a zygote is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.escape.arena import Arena

from cenote_security.errors import IsolationUnavailableError
from cenote_security.policy import Isolation


def _arena(level: Isolation) -> Iterator[Arena]:
    try:
        arena = Arena(level)
    except IsolationUnavailableError as error:
        pytest.skip(str(error))
    yield arena
    arena.close()


@pytest.fixture(scope="session")
def strict_arena() -> Iterator[Arena]:
    yield from _arena("strict")


@pytest.fixture(scope="session")
def landlock_arena() -> Iterator[Arena]:
    yield from _arena("landlock")


@pytest.fixture(params=["strict", "landlock"])
def level(request: pytest.FixtureRequest) -> str:
    """Each level that has walls: every attempt is made at both."""
    return str(request.param)


@pytest.fixture
def arena(level: str, request: pytest.FixtureRequest) -> Arena:
    arena: Arena = request.getfixturevalue(f"{level}_arena")
    return arena
