"""A proxy with a simulated internet, servers on loopback, and jails whose proxy uses loopback as the internet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.support.egress.world import LONG, Door, Sink, Site, World, site

from cenote.runtime import PythonRuntime
from cenote_security.network import Allow, Secret
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.proxy import EgressService
from cenote_worker.egress.relay import ProxyTimeouts
from cenote_worker.runtime import runtime as hosted
from cenote_worker.supervisor.start import JailStarter

OpenDoor = Callable[..., Door]
NetworkRuntime = Callable[..., PythonRuntime]
NO_CREDENTIALS: Mapping[str, Secret] = {}


@pytest.fixture(scope="session")
def plain_site() -> Iterator[Site]:
    with site(tls=False) as served:
        yield served


@pytest.fixture(scope="session")
def tls_site() -> Iterator[Site]:
    with site(tls=True) as served:
        yield served


@pytest.fixture(scope="session")
def retrying_site() -> Iterator[Site]:
    """Accepts no key share that clients guess: it requests a second ClientHello from each."""
    with site(tls=True, curve="secp384r1") as served:
        yield served


@pytest.fixture
def sink() -> Iterator[Sink]:
    opened = Sink()
    yield opened
    opened.close()


@pytest.fixture
def world() -> World:
    return World()


class Doors:
    """Sessions of one test at a time with proxies that serve the whole run, one per kind of time limits."""

    def __init__(self) -> None:
        self.world = World()
        self._services: dict[ProxyTimeouts, EgressService] = {}
        self._doors: list[Door] = []

    def open(self, *destinations: str, patience: ProxyTimeouts = LONG, **limits: Any) -> Door:
        if patience not in self._services:
            self._services[patience] = EgressService(lambda: self.world, patience)
        self._doors.append(Door(self._services[patience], Allow(destinations, **limits)))
        return self._doors[-1]

    def close(self) -> None:
        while self._doors:
            self._doors.pop().close()


@pytest.fixture(scope="session")
def doors() -> Doors:
    return Doors()


@pytest.fixture
def open_door(doors: Doors, world: World) -> Iterator[OpenDoor]:
    """open_door("files.test:80", ...): a proxy session for this allow-list, with long time limits by default."""
    doors.world = world
    yield doors.open
    doors.close()


@pytest.fixture(scope="session")
def nursery() -> JailStarter:
    return JailStarter(World)


@pytest.fixture
def network_runtime(nursery: JailStarter, monkeypatch: pytest.MonkeyPatch) -> Iterator[NetworkRuntime]:
    """network_runtime("files.test:80"): a runtime whose jail may reach these names, which resolve to loopback.

    credentials: of the Allow; other settings are the policy's.
    """
    made: list[PythonRuntime] = []
    monkeypatch.setattr(hosted, "start_jail", nursery.start)

    def make(
        *destinations: str, credentials: Mapping[str, Secret] = NO_CREDENTIALS, **settings: Any
    ) -> PythonRuntime:
        plain = {"isolation": "strict", "preload": (), "snapshots": "none"}
        policy = SandboxPolicy(**plain | settings, network=Allow(destinations, credentials=credentials))
        made.append(PythonRuntime(sandbox=policy))
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()
