"""A server over real jails, and connections to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.serving.plain import Line

from cenote_security.errors import RejectedError, UnknownRuntimeError
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.serving.limits import ServerTimeouts
from cenote_worker.serving.references import LocalReferences, SharedValueStore
from cenote_worker.serving.relay import HostRelay
from cenote_worker.serving.rights import Rights
from cenote_worker.serving.server import RuntimeServer

PLAIN: dict[str, Any] = {"snapshots": "none", "tracking": False}
"""Disabled in tests that do not need it: it would be half the time of a cell."""

TENANTS = {"good": "us", "other": "them", "reader": "us"}


def authorise(token: str, runtime: str | None) -> Rights:
    """Runtimes whose id begins with the tenant's name belong to that tenant."""
    if token not in TENANTS:
        raise RejectedError("this token is not known")
    if runtime is not None and not runtime.startswith(TENANTS[token]):
        raise UnknownRuntimeError(runtime)
    if token == "reader":
        return Rights(tenant="us", granted=frozenset(("read",)))
    return Rights(tenant=TENANTS[token])


class World:
    """A server, its runtimes, and the connections of a test."""

    def __init__(self, patience: ServerTimeouts, references: SharedValueStore | None = None) -> None:
        self._own_references = LocalReferences(room=2 << 30)
        self.references = references or self._own_references
        self.server = RuntimeServer(authorise, self.references, patience=patience)
        self.address = self.server.start().components
        self.hosted: dict[str, HostedRuntime] = {}
        self.lines: list[Line] = []
        self._numbers = itertools.count(1)

    def runtime(self, tenant: str = "us", **policy: Any) -> str:
        """Creates a runtime; returns its id."""
        name = f"{tenant}-{next(self._numbers)}"
        relay = HostRelay()
        self.hosted[name] = HostedRuntime(SandboxPolicy(**PLAIN | policy), relay, name=name)
        self.server.add(name, self.hosted[name], relay)
        return name

    def line(self, runtime: str, client: str = "one", **hello: Any) -> Line:
        """A connection after the server's welcome."""
        line = Line(self.address, runtime, client, **hello)
        self.lines.append(line)
        line.welcome()
        return line

    def close(self) -> None:
        for line in self.lines:
            line.cut()
        self.server.close()
        for hosted in self.hosted.values():
            hosted.close()
        self._own_references.close()


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """Servers with their own timeouts."""
    made: list[World] = []

    def make(**patience: float) -> World:
        made.append(World(ServerTimeouts(**patience)))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
