"""Tenants' environments in the gateway, over machines that answer as they are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from cenote.gateway.environments.registry import EnvironmentRegistry
from cenote.gateway.machines.nodes import MachineStatus, Nodes
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.stores import Stores
from cenote.gateway.values.principal import Principal
from cenote.gateway.values.quota import Quota
from cenote_proto.v1.platform_pb2 import BuildEnvironmentRequest, EnvironmentDescription
from cenote_security.auth.tokens import Scope
from cenote_security.errors import QuotaExceededError, ScopeMissingError, UnavailableError, UnknownEntryError
from cenote_worker.environments.store import BuiltEnvironment
from cenote_worker.node.environment_builds import BuildOrder, BuildReport
from cenote_worker.node.environment_jail import BuildSettings

LOCK = "tone==1.5 --hash=sha256:aa\n"
DIGEST = "d" * 64
BUILT = BuiltEnvironment(
    digest=DIGEST,
    venv="/v",
    python="cpython-3.11",
    platform="linux",
    preload=(),
    packages=("tone==1.5",),
    lock=LOCK,
    size=1000,
)
BUILDING = BuildReport(state="building", progress="resolving 1 requirements")
READY = BuildReport(state="ready", built=BUILT)


@dataclass
class FakeNodes:
    """here: digests by machine. report: the answer to each order. orders: with the machine of each."""

    here: dict[str, set[str]] = field(default_factory=lambda: {"first": set()})
    report: BuildReport = BUILDING
    orders: list[tuple[str, BuildOrder]] = field(default_factory=list)
    in_use: bool = False
    answers: bool = True

    def describe(self) -> list[MachineStatus]:
        return [
            MachineStatus(id=node, address="", environments=frozenset(digests))
            for node, digests in self.here.items()
        ]

    def build_environment(self, node: str, order: BuildOrder) -> BuildReport:
        if not self.answers:
            raise UnavailableError("it does not answer")
        self.orders.append((node, order))
        if self.report.built is not None:
            self.here[node].add(self.report.built.digest)
        return self.report

    def remove_environment(self, node: str, digest: str) -> bool:
        if not self.in_use:
            self.here[node].discard(digest)
        return not self.in_use


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with Stores(StateFolder(path=tmp_path / "state")) as stores:
        yield stores


@pytest.fixture
def nodes() -> FakeNodes:
    return FakeNodes()


@pytest.fixture
def registry(stores: Stores, nodes: FakeNodes) -> EnvironmentRegistry:
    return registry_of(stores, nodes)


def registry_of(stores: Stores, nodes: FakeNodes) -> EnvironmentRegistry:
    return EnvironmentRegistry(
        stores, cast(Nodes, nodes), BuildSettings(wheels=("/wheels",)), {"given": "c" * 64}
    )


def tenant(stores: Stores, name: str, scopes: object = Scope) -> Principal:
    made = stores.tenants.create(name)
    return stores.tokens.authenticate(stores.tokens.issue(made.id, scopes).text)  # type: ignore[arg-type]


def asked(name: str, *requirements: str) -> BuildEnvironmentRequest:
    return BuildEnvironmentRequest(name=name, requirements=requirements or ("tone",))


def state(registry: EnvironmentRegistry, principal: Principal, name: str) -> str:
    return EnvironmentDescription.State.Name(registry.get(principal, name).state).lower()


def test_a_build_goes_on_after_the_gateway(
    stores: Stores, nodes: FakeNodes, registry: EnvironmentRegistry
) -> None:
    """What is in the table is asked for again by the next one, under the same key."""
    acme = tenant(stores, "acme")
    registry.build(acme, asked("data"))
    registry.tick()
    assert ("building", BUILDING.progress) == (
        state(registry, acme, "data"),
        registry.get(acme, "data").progress,
    )
    later = registry_of(stores, nodes)
    nodes.report = READY
    later.tick()
    assert "ready" == state(later, acme, "data")
    assert 1 == len({order.key for _, order in nodes.orders})
    assert {"data": DIGEST} == later.own(acme.tenant)
    assert 1000 == stores.quotas.used(acme.tenant)[Quota.ENVIRONMENTS]


def test_a_machine_that_does_not_answer_is_asked_again(
    stores: Stores, nodes: FakeNodes, registry: EnvironmentRegistry
) -> None:
    acme = tenant(stores, "acme")
    nodes.answers = False
    registry.build(acme, asked("data"))
    registry.tick()
    assert ("building", "it does not answer") == (
        state(registry, acme, "data"),
        registry.get(acme, "data").progress,
    )
    nodes.answers, nodes.report = True, READY
    registry.tick()
    assert "ready" == state(registry, acme, "data")


def test_another_machine_goes_on_for_one_that_has_left(
    stores: Stores, nodes: FakeNodes, registry: EnvironmentRegistry
) -> None:
    acme = tenant(stores, "acme")
    registry.build(acme, asked("data"))
    registry.tick()
    nodes.here = {"second": set()}
    registry.tick()
    assert ["first", "second"] == [node for node, _ in nodes.orders]


def test_each_machine_builds_it_from_the_lock(
    stores: Stores, nodes: FakeNodes, registry: EnvironmentRegistry
) -> None:
    acme = tenant(stores, "acme")
    registry.build(acme, asked("data"))
    nodes.report = READY
    registry.tick()
    nodes.here["second"] = set()
    registry.sweep()
    node, order = nodes.orders[-1]
    assert order.lock is not None
    assert ("second", LOCK, ()) == (node, order.lock.text, order.requirements)
    count = len(nodes.orders)
    registry.sweep()
    assert count == len(nodes.orders)


def test_a_machine_that_cannot_build_a_copy_is_left_alone_for_a_while(
    stores: Stores, nodes: FakeNodes, registry: EnvironmentRegistry
) -> None:
    acme = tenant(stores, "acme")
    registry.build(acme, asked("data"))
    nodes.report = READY
    registry.tick()
    nodes.here["second"], nodes.report = set(), BuildReport(state="failed", error="no room")
    registry.sweep()
    count = len(nodes.orders)
    registry.sweep()
    assert count == len(nodes.orders)
    assert "ready" == state(registry, acme, "data")


def test_one_at_a_time_of_each_tenant(
    stores: Stores, nodes: FakeNodes, registry: EnvironmentRegistry
) -> None:
    acme, rival = tenant(stores, "acme"), tenant(stores, "rival")
    for principal, name in ((acme, "one"), (acme, "two"), (rival, "one")):
        registry.build(principal, asked(name, f"tone=={name}"))
    registry.tick()
    assert [("tone==one",), ("tone==one",)] == [order.requirements for _, order in nodes.orders]


def test_a_removal_during_the_build(stores: Stores, nodes: FakeNodes, registry: EnvironmentRegistry) -> None:
    """The name is free at once. What is built after all is removed from the machine, and its quota comes back."""
    acme = tenant(stores, "acme")
    registry.build(acme, asked("data"))
    registry.tick()
    registry.remove(acme, "data")
    with pytest.raises(UnknownEntryError):
        registry.get(acme, "data")
    nodes.report = READY
    registry.tick()
    registry.sweep()
    assert {"first": set()} == nodes.here
    assert 0 == stores.quotas.used(acme.tenant)[Quota.ENVIRONMENTS]
    assert [] == stores.environments.ids()


def test_files_in_use_are_removed_later(
    stores: Stores, nodes: FakeNodes, registry: EnvironmentRegistry
) -> None:
    """Until then they count."""
    acme = tenant(stores, "acme")
    registry.build(acme, asked("data"))
    nodes.report = READY
    registry.tick()
    nodes.in_use = True
    registry.remove(acme, "data")
    registry.sweep()
    assert 1000 == stores.quotas.used(acme.tenant)[Quota.ENVIRONMENTS]
    nodes.in_use = False
    registry.sweep()
    assert 0 == stores.quotas.used(acme.tenant)[Quota.ENVIRONMENTS]
    assert {"first": set()} == nodes.here


def test_equal_content_stays_for_the_other_tenant(
    stores: Stores, nodes: FakeNodes, registry: EnvironmentRegistry
) -> None:
    acme, rival = tenant(stores, "acme"), tenant(stores, "rival")
    nodes.report = READY
    for principal in (acme, rival):
        registry.build(principal, asked("data"))
        registry.tick()
    registry.tick()
    registry.remove(acme, "data")
    registry.sweep()
    assert {"first": {DIGEST}} == nodes.here
    assert "ready" == state(registry, rival, "data")


def test_a_quota(stores: Stores, nodes: FakeNodes, registry: EnvironmentRegistry) -> None:
    """What is larger than what is left fails, and is removed; the next is refused at once where nothing is left."""
    acme = tenant(stores, "acme")
    stores.quotas.set_limit(acme.tenant, Quota.ENVIRONMENTS, 999)
    registry.build(acme, asked("data"))
    nodes.report = READY
    registry.tick()
    assert ("failed", True) == (state(registry, acme, "data"), "quota" in registry.get(acme, "data").error)
    assert nodes.orders[0][1].room <= 999
    registry.sweep()
    assert {"first": set()} == nodes.here
    stores.quotas.set_limit(acme.tenant, Quota.ENVIRONMENTS, 0)
    with pytest.raises(QuotaExceededError):
        registry.build(acme, asked("more"))
    assert ["data"] == [each.name for each in registry.page(acme, "", 0)[0] if not each.common]


def test_scopes(stores: Stores, registry: EnvironmentRegistry) -> None:
    reader = tenant(stores, "acme", [Scope.RUNTIMES_READ])
    assert ["given"] == [each.name for each in registry.page(reader, "", 0)[0]]
    for refused in (
        lambda: registry.build(reader, asked("data")),
        lambda: registry.remove(reader, "data"),
    ):
        with pytest.raises(ScopeMissingError):
            refused()
