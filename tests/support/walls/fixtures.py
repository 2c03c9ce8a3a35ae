"""One zygote per level for the whole session: starting one imports numpy and pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.support.walls.jails import Jail, zygote

from cenote_security.errors import IsolationUnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.zygote.client import ZygoteClient

StartJail = Callable[..., Jail]


def _serving(level: str) -> Iterator[ZygoteClient]:
    with zygote(isolation=level) as client:
        try:
            assert level == client.isolation
        except IsolationUnavailableError as error:
            pytest.skip(str(error))
        yield client


@pytest.fixture(scope="session")
def strict() -> Iterator[ZygoteClient]:
    yield from _serving("strict")


@pytest.fixture(scope="session")
def landlock() -> Iterator[ZygoteClient]:
    yield from _serving("landlock")


@pytest.fixture(params=["strict", "landlock"])
def level(request: pytest.FixtureRequest) -> str:
    """Each level that has walls: for properties of both."""
    return str(request.param)


@pytest.fixture
def start_jail(request: pytest.FixtureRequest) -> Iterator[StartJail]:
    """start_jail(level, **policy): a jail that is ended with the test."""
    jails: list[Jail] = []

    def start(level: str = "strict", **policy: object) -> Jail:
        source: ZygoteClient = request.getfixturevalue(level)
        jails.append(Jail(source, SandboxPolicy(isolation=level, **policy)))  # type: ignore[arg-type]
        return jails[-1]

    yield start
    for jail in jails:
        jail.close()


@pytest.fixture
def jail(level: str, start_jail: StartJail) -> Jail:
    """A jail at each level in turn."""
    return start_jail(level)


@pytest.fixture
def strict_jail(start_jail: StartJail) -> Jail:
    return start_jail("strict")
