"""A durable runtime moves to another machine: it arrives unchanged, or stays where it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import grpc
import pytest
from tests.support.gateway.world import BARE, World, refused

from cenote import PythonRuntime, connect
from cenote.gateway.api.server import THREADS
from cenote.gateway.errors import NodeLeftError
from cenote.gateway.machines.local_nodes import LocalNodes
from cenote.gateway.machines.nodes import MachineStatus, RuntimeLocation, RuntimeStatus
from cenote_proto.v1 import platform_pb2
from cenote_proto.v1.platform_pb2_grpc import PlatformServiceStub
from cenote_security.auth.capability import MasterKey
from cenote_security.auth.tokens import ORDINARY_SCOPES, Scope
from cenote_security.errors import UnknownRuntimeError
from cenote_security.ids import RuntimeId, TenantId
from cenote_worker.runtime.state.storage import RuntimeStorage
from cenote_worker.serving.limits import ServerTimeouts
from cenote_worker.tenancy.audit_events import EventBatch
from cenote_worker.tenancy.shared_quota import Limits


class TwoMachines:
    """See Nodes. Two machines, `a` and `b`, each with the runtimes that were placed on it."""

    grows = False

    def __init__(self, key: MasterKey) -> None:
        self.machines = {name: LocalNodes(key, patience=ServerTimeouts(grace=0.1)).start() for name in "ab"}
        self.homes: dict[RuntimeId, str] = {}
        self.drained: set[str] = set()
        self.rested = threading.Event()
        self.rested.set()

    def create(
        self,
        runtime: RuntimeId,
        tenant: TenantId,
        policy: bytes,
        *,
        lease: float,
        keeping: RuntimeStorage,
        node: str = "",
    ) -> RuntimeLocation:
        name = node or next(iter(self.machines))
        place = self.machines[name].create(runtime, tenant, policy, lease=lease, keeping=keeping)
        self.homes[runtime] = name
        return replace(place, node=name)

    def locate(self, runtime: RuntimeId) -> RuntimeLocation:
        return replace(self._home(runtime).locate(runtime), node=self.homes[runtime])

    def delete(self, runtime: RuntimeId) -> None:
        self._home(runtime).delete(runtime)
        del self.homes[runtime]

    def rest(self, runtime: RuntimeId) -> None:
        self.rested.wait()
        self._home(runtime).rest(runtime)

    def release(self, runtime: RuntimeId) -> None:
        self._home(runtime).release(runtime)
        del self.homes[runtime]

    def drain(self, node: str, wanted: bool) -> dict[RuntimeId, bool]:
        self.drained = self.drained | {node} if wanted else self.drained - {node}
        return {runtime: False for runtime, home in self.homes.items() if home == node}

    def describe(self) -> list[MachineStatus]:
        return [
            replace(one.describe()[0], id=name, draining=name in self.drained)
            for name, one in self.machines.items()
        ]

    def runtime(self, runtime: RuntimeId) -> RuntimeStatus:
        return self._home(runtime).runtime(runtime)

    def limit(self, limits: Mapping[TenantId, Limits]) -> None:
        pass

    def deeds(self, written: Mapping[str, int]) -> dict[str, list[EventBatch] | None]:
        return {name: one.deeds(written)["local"] for name, one in self.machines.items()}

    def reference_address(self, reference: str) -> str:
        raise UnknownRuntimeError(reference)

    def lose(self, name: str) -> None:
        self.machines.pop(name).close()

    def close(self) -> None:
        for one in self.machines.values():
            one.close()

    def _home(self, runtime: RuntimeId) -> LocalNodes:
        name = self.homes.get(runtime)
        if name is None:
            raise UnknownRuntimeError(runtime)
        if name not in self.machines:
            raise NodeLeftError(name)
        return self.machines[name]


class Moving:
    def __init__(self, world: World, machines: TwoMachines) -> None:
        self.machines = machines
        self._world = world
        self._user = world.user("acme", ORDINARY_SCOPES)
        self._stub = PlatformServiceStub(self._user.channel)
        self.platform = connect(world.address, self._user.token)

    def move(self, name: str, node: str = "") -> str:
        request = platform_pb2.MoveRuntimeRequest(name=name, node=node)
        metadata = (("authorization", f"Bearer {self._user.token}"),)
        return self._stub.MoveRuntime(request, metadata=metadata).node

    def begin_move(self, name: str) -> grpc.Future:
        metadata = (("authorization", f"Bearer {self._user.token}"),)
        return self._stub.MoveRuntime.future(platform_pb2.MoveRuntimeRequest(name=name), metadata=metadata)

    def drain(
        self, node: str, *scopes: Scope, tenant: str = "acme", resume: bool = False
    ) -> list[tuple[str, str]]:
        """Ids and names of what is left."""
        user = self._world.user(tenant, scopes)
        metadata = (("authorization", f"Bearer {user.token}"),)
        request = platform_pb2.DrainNodeRequest(node=node, resume=resume)
        left = PlatformServiceStub(user.channel).DrainNode(request, metadata=metadata)
        return [(one.id, one.name) for one in left.runtimes]

    def runtime(self, name: str = "r", **options: Any) -> PythonRuntime:
        return self.platform.runtime(name, sandbox=BARE, **{"durable": True, **options})


@pytest.fixture
def moving(make_world: Callable[..., World]) -> Iterator[Moving]:
    world = make_world(machines=TwoMachines)
    assert isinstance(world.nodes, TwoMachines)
    yield Moving(world, world.nodes)
    world.nodes.close()


@pytest.mark.slow
def test_it_is_there_as_it_was(moving: Moving) -> None:
    """Also for an attached client: its next call goes there."""
    with moving.runtime() as runtime:
        runtime.execute("x = [1]; alias = x; open('kept', 'w').write('text')")
        assert "b" == moving.move("r")
        assert "([1, 2], 'text')" == runtime.execute("x.append(2); alias, open('kept').read()").value
        assert [1, 2] == [step.number for step in runtime.state.history]
        assert ("a", "a") == (moving.move("r", "a"), moving.platform.find("r").node)
        assert "[1, 2]" == runtime.execute("alias").value


def test_what_cannot_be_moved_stays(moving: Moving) -> None:
    """It continues to run; the error says what would be missing."""
    with moving.runtime() as runtime, moving.runtime("memory", durable=False) as other:
        other.execute("x = 1")
        assert "would be missing on another" in refused(lambda: moving.move("memory")).text
        runtime.execute("import time; g = (n if time.time() else 0 for n in range(3)); next(g)")
        assert "g: " in refused(lambda: moving.move("r")).text
        assert "on a already" in refused(lambda: moving.move("r", "a")).text
        assert "no machine 'c'" in refused(lambda: moving.move("r", "c")).text
        assert ["1", "1"] == [runtime.execute("next(g)").value, other.execute("x").value]


@pytest.mark.slow
def test_one_that_takes_its_time_to_go_to_sleep(moving: Moving) -> None:
    """However many callers request its move, no other request waits, not even for that runtime."""
    with moving.runtime() as runtime:
        runtime.execute("x = 1")
        moving.machines.rested.clear()
        moves = [moving.begin_move("r") for _ in range(2 * THREADS)]
        assert "a" == moving.platform.find("r").node
        moving.machines.rested.set()
        assert all(move.exception() is None for move in moves)
        assert "1" == runtime.execute("x").value


def test_its_machine_is_gone(moving: Moving) -> None:
    """The next call has it served on another machine, from the store that both have."""
    with moving.runtime() as runtime:
        runtime.execute("x = [1]")
        moving.machines.lose("a")
        assert "hibernated" == moving.platform.find("r").state
        assert "[1]" == runtime.execute("x").value
        assert "b" == moving.platform.find("r").node


OPERATOR = (Scope.MACHINES, Scope.ADMIN)


@pytest.mark.parametrize("scope", OPERATOR)
def test_a_drain_takes_two_scopes(moving: Moving, scope: Scope) -> None:
    """A token for metrics has one of them, a tenant's own administrator the other."""
    assert grpc.StatusCode.PERMISSION_DENIED == refused(lambda: moving.drain("a", scope)).code
    assert set() == moving.machines.drained


def test_what_a_drained_machine_still_has_is_named_to_its_tenant(moving: Moving) -> None:
    with moving.runtime("mine", durable=False):
        found = moving.platform.find("mine").id
        assert [(found, "mine")] == moving.drain("a", *OPERATOR)
        assert [(found, "")] == moving.drain("a", *OPERATOR, tenant="other")


def test_nothing_moves_to_a_drained_machine(moving: Moving) -> None:
    with moving.runtime() as runtime:
        runtime.execute("x = 1")
        moving.drain("b", *OPERATOR)
        assert "cenote node resume b" in refused(lambda: moving.move("r", "b")).text
        assert "only machine that takes" in refused(lambda: moving.move("r")).text
        moving.drain("b", *OPERATOR, resume=True)
        assert "b" == moving.move("r")


def test_a_machine_that_is_not_there_is_not_drained(moving: Moving) -> None:
    assert "this platform has a, b" in refused(lambda: moving.drain("c", *OPERATOR)).text
