"""A platform's gateway over real jails: runtimes created once, found, listed, ended; the effects of a restart."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.support.gateway.world import BARE, Description, World, refused
from tests.waiting import PATIENCE, until

from cenote.gateway.api.creations import STARTS
from cenote.gateway.api.fair_turns import TenantSemaphore
from cenote.gateway.api.runtime_registry import RuntimeRegistry, RuntimeRequest
from cenote.gateway.audit.reader import entries, verify
from cenote.gateway.errors import DatabaseUnavailableError, NodeLeftError
from cenote.gateway.machines.local_nodes import LocalNodes
from cenote.gateway.machines.nodes import MachineStatus, RuntimeLocation, RuntimeStatus
from cenote.gateway.values.quota import Quota
from cenote.runtime import Function, PythonRuntime, Variable
from cenote_proto.v1 import platform_pb2, runtime_pb2
from cenote_proto.v1.platform_pb2_grpc import PlatformServiceStub
from cenote_security.auth.capability import MasterKey
from cenote_security.errors import UnavailableError, UnknownRuntimeError
from cenote_security.ids import RuntimeId, TenantId
from cenote_security.policy import SandboxPolicy
from cenote_worker.process.file_systems import kind_of
from cenote_worker.serving.endpoints import Endpoints
from cenote_worker.serving.server import RuntimeServer
from cenote_worker.tenancy.audit_events import EventBatch
from cenote_worker.tenancy.shared_quota import Limits
from cenote_worker.wire import policies

BARE_TERMS: dict[str, Any] = {"preload": (), "memory": "256MiB"}


class SlowNodes:
    """Nodes without machines. Creation of runtimes blocks on a gate, if one is given.

    left: seconds since the nodes left, with all their runtimes.
    """

    def __init__(self, gate: threading.Event | None = None, failure: Exception | None = None) -> None:
        self.made: list[str] = []
        self.left: float | None = None
        self._gate = gate
        self._failure = failure
        self._here: set[str] = set()

    def create(self, runtime: RuntimeId, tenant: str, policy: bytes, **_terms: object) -> RuntimeLocation:
        self.made.append(tenant)
        if self._gate is not None:
            assert self._gate.wait(PATIENCE)
        if self._failure is not None:
            raise self._failure
        self._here.add(runtime)
        return self.locate(runtime)

    def locate(self, runtime: RuntimeId) -> RuntimeLocation:
        return RuntimeLocation(
            node="nowhere", doors=Endpoints(components="127.0.0.1:9", clients="127.0.0.1:9")
        )

    def delete(self, runtime: RuntimeId) -> None:
        if runtime not in self._here:
            raise UnknownRuntimeError(runtime)
        self._here.discard(runtime)

    grows = False

    def want_room(self, runtimes: int) -> None:
        pass

    def describe(self) -> list[MachineStatus]:
        return []

    def runtime(self, runtime: RuntimeId) -> RuntimeStatus:
        if runtime not in self._here:
            raise UnknownRuntimeError(runtime)
        if self.left is not None:
            return RuntimeStatus(state="lost", reason="its machine has left", lost_for=self.left)
        return RuntimeStatus()

    def clear(self, on_record: Callable[[], Collection[RuntimeId]]) -> None:
        pass

    def limit(self, limits: Mapping[TenantId, Limits]) -> None:
        pass

    def deeds(self, written: Mapping[str, int]) -> dict[str, list[EventBatch] | None]:
        return {}

    def reference_address(self, reference: str) -> str:
        return "127.0.0.1:9"


class SilentNodes(SlowNodes):
    """While `silent`, the node does not answer, or fails, when a runtime is to be ended."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__(failure=failure)
        self.silent = True
        self.asked: list[RuntimeId] = []

    def delete(self, runtime: RuntimeId) -> None:
        if self.silent:
            raise self._failure or UnavailableError("no answer")
        self.asked.append(runtime)
        super().delete(runtime)


class StumblingNodes(SlowNodes):
    """The first call of each kind fails with an unexpected error."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def _stumble(self, what: str) -> None:
        self.asked[what] += 1
        if self.asked[what] == 1:
            raise OSError(errno.EMFILE, "too many open files")

    def limit(self, limits: Mapping[TenantId, Limits]) -> None:
        self._stumble("limit")

    def deeds(self, written: Mapping[str, int]) -> dict[str, list[EventBatch] | None]:
        self._stumble("deeds")
        return {}


def seven() -> int:
    return 7


def test_a_runtime_is_made_used_and_deleted(either: World) -> None:
    """It keeps its state between connections; deletion frees its name and its part of the quotas."""
    acme = either.user("acme")
    made = acme.create("etl")
    assert ("etl", Description.READY, BARE.memory_bytes) == (made.name, made.state, made.policy.memory)
    first = acme.line(made, "first")
    first.welcome()
    assert first.run("x = 6").success
    second = acme.line(acme.get("etl"), "second")
    second.welcome()
    assert "42" == second.run("x * 7").value
    assert (2, 2) == (acme.get("etl").steps, acme.get(made.id).clients)
    acme.delete("etl")
    assert grpc.StatusCode.UNAVAILABLE == first.ended().code  # ask the gateway, which knows where it is
    assert grpc.StatusCode.NOT_FOUND == refused(lambda: acme.get(made.id)).code
    assert ([], 0) == (acme.names(), either.stores.quotas.used(acme.tenant)[Quota.MEMORY])


def test_what_was_just_made_is_not_asked_after(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that made it has said where, and it has had no client yet."""
    asked: list[str] = []
    with monkeypatch.context() as patched:
        for call in ("runtime", "locate"):
            patched.setattr(LocalNodes, call, lambda _nodes, runtime: asked.append(runtime))
        made = world.user("acme").create("etl")
    assert [] == asked
    found = world.user("acme").get("etl")
    assert (found.id, found.node, found.address, found.state, 0, 0) == (
        made.id,
        made.node,
        made.address,
        made.state,
        made.clients,
        made.steps,
    )


def test_our_own_client_works_through_either(either: World) -> None:
    """Cells with output, host functions, values and references work without a direct connection."""
    acme = either.user("acme")
    heard: list[str] = []
    with (
        PythonRuntime(address=either.address, token=acme.token, sandbox=BARE) as one,
        PythonRuntime(address=either.address, token=acme.token, sandbox=BARE) as other,
    ):
        one.inject(Function(seven, host=True), Variable("big", b"x" * 3_000_000))
        result = one.execute("print(seven()); len(big)", on_output=lambda _, text: heard.append(text))
        assert ("3000000", ["7\n"]) == (result.value, heard)
        other.inject(Variable("same", one.share("big")))
        assert "True" == other.execute("same == b'x' * 3_000_000").value
        assert b"x" * 3_000_000 == one.retrieve("big")


def test_a_repeated_request_gives_what_the_first_one_made(world: World) -> None:
    """One after the other, and concurrently; another tenant's equal key is a different key."""
    acme, rival = world.user("acme"), world.user("rival")
    first = acme.create("etl", key="k")
    assert first.id == acme.create("etl", key="k").id
    assert first.id != rival.create("etl", key="k").id
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: acme.create("", key="at once").id, range(8)))
    assert 1 == len(set(made))
    assert 2 == len(acme.names())


def test_a_taken_name_is_refused_or_joined(world: World) -> None:
    """With `attach` the caller gets the existing runtime, whatever policy it sent."""
    acme = world.user("acme")
    first = acme.create("etl")
    assert "the runtime 'etl' exists already" in refused(lambda: acme.create("etl")).text
    assert first.id == acme.create("etl", attach=True).id
    assert "rt_" in refused(lambda: acme.create("rt_mine")).text


def test_what_goes_wrong_once_is_tried_again(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the failure: no other task manages runtimes, or collects what was done."""
    monkeypatch.setattr("cenote.gateway.api.server.SWEEP_EVERY", 0.05)
    nodes = StumblingNodes()
    make_world(nodes=nodes)
    until(lambda: nodes.asked["limit"] > 2)
    until(lambda: nodes.asked["deeds"] > 2)


def test_pages_are_by_name(make_world: Callable[..., World]) -> None:
    """Each runtime is on one page; the last page says that it is the last."""
    acme = make_world(nodes=SlowNodes()).user("acme")
    for number in range(5):
        acme.create(f"n{number}")
    pages, after = [], ""
    while True:
        reply = acme.page(limit=2, page=after)
        pages.append([each.name for each in reply.runtimes])
        if not (after := reply.next_page):
            break
    assert [["n0", "n1"], ["n2", "n3"], ["n4"]] == pages


def test_what_strangers_send_is_not_parsed(world: World) -> None:
    """They are refused with the same text, whatever they send."""
    acme = world.user("acme")
    create = acme.channel.unary_unary("/cenote_proto.v1.PlatformService/CreateRuntime")
    texts = [refused(partial(create, sent)).text for sent in (b"", b"\xff" * (3 << 20))]
    assert texts[0] == texts[1]
    assert "token" in texts[0]


@pytest.mark.slow
def test_a_lease_ends_a_runtime_that_nobody_uses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while it has a client; after that its name is free and its part of the quotas returned."""
    attached, remove_idle = threading.Event(), RuntimeServer.remove_idle
    monkeypatch.setattr(
        RuntimeServer, "remove_idle", lambda *asked: attached.wait(PATIENCE) and remove_idle(*asked)
    )
    acme = world.user("acme")
    made = acme.create("", lease=0.2)
    line = acme.line(made)
    line.welcome()
    attached.set()
    threading.Event().wait(0.6)  # several polls of the lease task
    assert line.run("1").success
    line.finish()
    until(lambda: not acme.names())
    assert grpc.StatusCode.NOT_FOUND == refused(lambda: acme.get(made.id)).code
    until(lambda: 0 == world.stores.quotas.used(acme.tenant)[Quota.RUNTIMES])  # after its name


def test_leases_are_looked_after_whatever_goes_wrong_with_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_idle, asked = RuntimeServer.remove_idle, []

    def stumbles(server: RuntimeServer, runtime: str, seconds: float) -> bool:
        asked.append(runtime)
        if len(asked) == 1:
            raise OSError(errno.EMFILE, "too many open files")
        return remove_idle(server, runtime, seconds)

    monkeypatch.setattr(RuntimeServer, "remove_idle", stumbles)
    acme = world.user("acme")
    acme.create("", lease=0.1)
    until(lambda: not acme.names())


def test_a_value_that_is_let_go_of_before_it_was_held_goes_at_once(world: World) -> None:
    """A client's release may arrive before its own hold; the hold is then too late."""
    acme = world.user("acme")
    reference = acme.share(acme.create("one"), "[1, 2]")
    acme.release(reference)
    assert [] == list(acme.references().references)
    assert grpc.StatusCode.NOT_FOUND == refused(lambda: acme.hold(reference)).code


def test_what_a_restart_loses_is_said(world: World) -> None:
    """A named runtime is lost, with the reason, until it is removed; one with a lease is gone."""
    acme = world.user("acme")
    acme.create("kept"), acme.create("", lease=60)
    token = acme.token
    world.reopen()
    acme = world.holder(token, acme.tenant)
    assert ["kept"] == acme.names()
    lost = acme.get("kept")
    assert (Description.LOST, True, "") == (lost.state, "was stopped" in lost.reason, lost.capability)
    acme.delete("kept")
    assert Description.READY == acme.create("kept").state


def test_what_is_lost_has_no_part_of_the_quotas(world: World) -> None:
    """It stays on the list, with the reason, and uses only its name. Existing runtimes keep their quotas."""
    acme = world.user("acme")
    for quota, bound in ((Quota.RUNTIMES, 2), (Quota.MEMORY, 2 * BARE.memory_bytes)):
        world.stores.quotas.set_limit(acme.tenant, quota, bound)
    acme.create("one"), acme.create("two")
    said = refused(lambda: acme.create("three")).text
    assert "it is held by one, two: remove runtimes" in said
    token = acme.token
    world.reopen()
    acme = world.holder(token, acme.tenant)
    acme.create("three"), acme.create("four")  # before the state of the others is known
    assert {Quota.RUNTIMES: 2, Quota.MEMORY: 2 * BARE.memory_bytes}.items() <= (
        world.stores.quotas.used(acme.tenant).items()
    )
    states = {name: acme.get(name).state for name in acme.names()}
    assert {"one": Description.LOST, "two": Description.LOST} == {
        name: state for name, state in states.items() if state != Description.READY
    }
    assert "it is held by three, four: " in refused(lambda: acme.create("five")).text


def test_the_sweep_frees_what_the_lost_have_of_the_quotas(world: World) -> None:
    """Jobs check what is free and request no more. A runtime that was wrongly taken for lost regains its quotas."""
    acme = world.user("acme")
    acme.create("kept")
    nodes = world.nodes
    registry = RuntimeRegistry(world.stores, nodes)
    record = world.stores.runtimes.by_name(acme.tenant, "kept")
    world.stores.quotas.release(record.id)
    assert 0 == world.stores.quotas.used(acme.tenant)[Quota.RUNTIMES]
    acme.get("kept")
    assert 1 == world.stores.quotas.used(acme.tenant)[Quota.RUNTIMES]
    nodes.delete(record.id)
    registry.sweep()
    assert 0 == world.stores.quotas.used(acme.tenant)[Quota.RUNTIMES]
    assert Description.LOST == acme.get("kept").state


def test_what_a_machine_takes_along_is_said(make_world: Callable[..., World]) -> None:
    """A named runtime is lost, with the reason, until it is removed. One that has a lease uses names and quotas
    until the lease ends.
    """
    nodes = SlowNodes()
    world = make_world(nodes=nodes)
    acme, registry = world.user("acme"), RuntimeRegistry(world.stores, nodes)
    leased = acme.create("", lease=60).name
    acme.create("kept")
    nodes.left = 60.0
    registry.sweep()
    assert sorted(["kept", leased]) == acme.names()
    nodes.left = 60.1
    registry.sweep()
    # The platform's own sweep may run first, and be about to free the quotas.
    until(lambda: (["kept"], 1) == (acme.names(), world.stores.quotas.used(acme.tenant)[Quota.RUNTIMES]))
    lost = acme.get("kept")
    assert (Description.LOST, "its machine has left", "") == (lost.state, lost.reason, lost.capability)
    acme.delete("kept")
    assert [] == acme.names()


def test_what_a_machine_took_along_can_be_removed(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its job, too. If the machine comes back with it, it is ended there: no client can name it any more."""

    def gone(_runtime: RuntimeId) -> None:
        raise NodeLeftError("n1")

    nodes = SlowNodes()
    world = make_world(nodes=nodes)
    acme = world.user("acme")
    acme.create("kept"), acme.create("job-0123456789-1-1-abc", lease=60)
    nodes.left = 1.0
    monkeypatch.setattr(nodes, "delete", gone)
    acme.delete("kept")
    RuntimeRegistry(world.stores, nodes).delete_all_of(acme.tenant, "job-0123456789-", "its job was deleted")
    assert [] == acme.names()
    assert 0 == world.stores.quotas.used(acme.tenant)[Quota.RUNTIMES]


def test_what_was_not_made_leaves_nothing(make_world: Callable[..., World]) -> None:
    """The caller gets the reason; name and quotas are as before."""
    world = make_world(nodes=SlowNodes(failure=UnavailableError("all machines are full")))
    acme = world.user("acme")
    refusal = refused(lambda: acme.create("etl"))
    assert (grpc.StatusCode.UNAVAILABLE, "all machines are full") == (refusal.code, refusal.text)
    assert ([], 0) == (acme.names(), world.stores.quotas.used(acme.tenant)[Quota.RUNTIMES])


@pytest.mark.parametrize("failure", [None, RuntimeError("Ray has no head")])
def test_what_cannot_be_taken_back_yet_is_later(
    make_world: Callable[..., World], failure: Exception | None
) -> None:
    """Its name and its request's key are free at once; its part of the quotas is freed when its machine answers."""
    nodes = SilentNodes(failure)
    world = make_world(nodes=nodes)
    acme, registry = world.user("acme"), RuntimeRegistry(world.stores, nodes)
    principal = world.stores.tokens.authenticate(acme.token)
    wish = RuntimeRequest(name="etl", policy=BARE, attach=False, key="k", lease=0.0)
    record, _ = registry.admit(principal, wish)
    registry.abandon(record)
    assert registry.admit(principal, wish)[1], "the same request makes another"
    assert 2 == world.stores.quotas.used(acme.tenant)[Quota.RUNTIMES]
    (left,) = [facts for found, facts in registry.page(principal, "", 0)[0] if found.id == record.id]
    assert "could not be made" in left.reason
    nodes.silent = False
    registry.sweep()
    assert (["etl"], 1) == (acme.names(), world.stores.quotas.used(acme.tenant)[Quota.RUNTIMES])
    assert [record.id] == nodes.asked


def away_once(monkeypatch: pytest.MonkeyPatch, store: object, name: str) -> None:
    works = getattr(store, name)

    def away(*_given: object) -> None:
        monkeypatch.setattr(store, name, works)
        raise DatabaseUnavailableError("here", "it is away")

    monkeypatch.setattr(store, name, away)


def test_what_is_admitted_as_the_database_goes_away(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database fails between recording the name and the quota, and during the undo. The runtime is not listed,
    and is undone later.
    """
    world = make_world(nodes=SlowNodes())
    stores, registry = world.stores, RuntimeRegistry(world.stores, SlowNodes())
    principal = stores.tokens.authenticate(world.user("acme").token)
    wish = RuntimeRequest(name="etl", policy=BARE, attach=False, key="k", lease=0.0)
    away_once(monkeypatch, stores.quotas, "reserve")
    away_once(monkeypatch, stores.runtimes, "remove")
    with pytest.raises(DatabaseUnavailableError):
        registry.admit(principal, wish)
    with pytest.raises(UnavailableError, match="taken back"):
        registry.admit(principal, wish)
    registry.sweep()
    assert registry.admit(principal, wish)[1]


def test_a_quota_that_is_given_back_as_the_database_goes_away(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runtime is gone, and cannot be deleted again: the next sweep releases the quota."""
    world = make_world(nodes=SlowNodes())
    acme, registry = world.user("acme"), RuntimeRegistry(world.stores, SlowNodes())
    principal = world.stores.tokens.authenticate(acme.token)
    acme.create("etl"), acme.create("kept")
    away_once(monkeypatch, world.stores.quotas, "release")
    with pytest.raises(DatabaseUnavailableError):
        registry.delete(principal, registry.find(principal, "etl"))
    registry.sweep()
    assert (["kept"], 1) == (acme.names(), world.stores.quotas.used(acme.tenant)[Quota.RUNTIMES])


def test_what_nobody_expected_is_not_told(make_world: Callable[..., World]) -> None:
    """An internal error ends the call; its text is shown to the operator only."""
    acme = make_world(nodes=SlowNodes(failure=RuntimeError("/secret/path"))).user("acme")
    refusal = refused(lambda: acme.create("etl"))
    assert grpc.StatusCode.UNAVAILABLE == refusal.code
    assert "secret" not in refusal.text


def test_a_making_goes_on_when_whoever_asked_has_gone(make_world: Callable[..., World]) -> None:
    """The repeated request finds what the first one began."""
    gate = threading.Event()
    nodes = SlowNodes(gate)
    acme = make_world(nodes=nodes).user("acme")
    first = acme.creation("etl", key="k")
    until(lambda: bool(nodes.made))
    assert first.cancel()
    gate.set()
    assert "etl" == acme.create("etl", key="k").name
    assert 1 == len(nodes.made)


def test_a_name_that_was_taken_is_made_when_whoever_asked_has_gone(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gives up while its request is being recorded: the runtime is created all the same."""
    nodes, writing, admit = SlowNodes(), threading.Event(), RuntimeRegistry.admit
    monkeypatch.setattr(RuntimeRegistry, "admit", lambda *given: writing.set() or admit(*given))
    world = make_world(nodes=nodes)
    acme = world.user("acme")
    with closing(sqlite3.connect(world.state.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # another process writes, so this one waits
        gone = acme.creation("etl")
        assert writing.wait(PATIENCE)
        assert gone.cancel()
        other.execute("ROLLBACK")
    until(lambda: bool(nodes.made))
    until(lambda: Description.READY == acme.get("etl").state)


def test_preloads_are_the_same_in_any_order(make_world: Callable[..., World]) -> None:
    """A node has one process for each list of modules; different orders must not start more of them."""
    acme = make_world(nodes=SlowNodes()).user("acme")
    lists = [("pandas", "numpy"), ("numpy", "pandas", "numpy"), ("pandas",)]
    made = [acme.create("", replace(BARE, preload=each)).policy.preload for each in lists]
    assert [["numpy", "pandas"], ["numpy", "pandas"], ["pandas"]] == [list(each) for each in made]


def test_starts_are_shared_out_fairly(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant with many waiting starts does not delay another tenant's first start until all are done."""
    gate, turn, asked = threading.Event(), TenantSemaphore.turn, list[str]()
    monkeypatch.setattr(
        TenantSemaphore, "turn", lambda turns, who: asked.append(who.tenant) or turn(turns, who)
    )
    nodes = SlowNodes(gate)
    world = make_world(nodes=nodes)
    hog, small = world.user("hog"), world.user("small")
    many = STARTS + 18
    waiting = [hog.creation(f"h{number}") for number in range(many)]
    until(lambda: many == len(asked))
    waiting.append(small.creation("s"))
    until(lambda: small.tenant in asked)
    gate.set()
    for each in waiting:
        each.result()
    assert many == Counter(nodes.made)[hog.tenant]
    assert nodes.made.index(small.tenant) < STARTS + 10


def test_what_happens_is_on_record(either: World) -> None:
    """Creating, opening, refusing and ending, with the caller; and the log verifies."""
    acme = either.user("acme")
    made = acme.create("etl")
    acme.line(made).welcome()
    refused(lambda: acme.get("other"))
    acme.delete("etl")
    either.stores.recorder.close()
    found = [entry.event for entry in entries(either.state.audit)]
    kinds = [(event.kind, event.facts.get("action"), event.facts.get("allowed")) for event in found]
    opened = "attach" if either.relayed else "capability"
    for expected in [
        ("runtime.created", None, None),
        ("access", opened, True),
        ("access", "get", False),
        ("access", "delete", True),
        ("runtime.removed", None, None),
    ]:
        assert expected in kinds
    assert {acme.tenant} == {event.tenant for event in found}
    assert verify(either.state.audit, either.state.audit_key.read_bytes()).broken is None


def test_strangers_write_nothing_into_the_log(world: World) -> None:
    """A client that reaches the port without a token cannot fill the disk."""
    refused(world.holder("garbage").page)
    world.stores.recorder.close()
    assert [] == list(entries(world.state.audit))


def test_any_grpc_tool_can_ask_what_is_here(world: World) -> None:
    """Health and reflection, as gRPC's own tools use them."""
    with grpc.insecure_channel(world.address) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        answer = next(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([asked])))
    services = {service.name for service in answer.list_services_response.service}
    assert health_pb2.HealthCheckResponse.SERVING == health.status
    assert {f"cenote_proto.v1.{name}Service" for name in ("Platform", "Runtime", "Reference")} < services


def test_shared_values_beyond_memory_are_on_disk(make_world: Callable[..., World], tmp_path: Path) -> None:
    """With and without Ray: a platform accepts more than it has memory for, and returns it unchanged."""
    if kind_of(tmp_path.stat().st_dev) in ("tmpfs", "ramfs"):
        pytest.skip("the disk of the tests is memory")
    size = 900_000
    with ExitStack() as opened:

        def machines(key: MasterKey) -> LocalNodes:
            return opened.enter_context(LocalNodes(key, room=1 << 20, disk=tmp_path))

        user = make_world(machines=machines).user("acme")
        runtime = user.create("big")
        references = [user.share(runtime, f"bytes([{byte}]) * {size}") for byte in (1, 2, 3)]
        for byte, reference in enumerate(references, 1):
            assert bytes([byte]) * size in user.read(reference)


def test_a_runtime_without_a_policy_has_the_default_one(world: World) -> None:
    """In any client language: the client need not know about policies."""
    channel = world.user("acme").channel
    metadata = (("authorization", f"Bearer {world.user('acme').token}"),)
    stub = PlatformServiceStub(channel)
    made = stub.CreateRuntime(platform_pb2.CreateRuntimeRequest(name="plain"), metadata=metadata)
    assert policies.from_policy(SandboxPolicy()) == made.policy
    wanted = platform_pb2.CreateRuntimeRequest(name="some", policy=runtime_pb2.Policy(memory=128 << 20))
    given = stub.CreateRuntime(wanted, metadata=metadata).policy
    default = SandboxPolicy()
    assert (128 << 20, default.cpus, default.processes, default.disk_bytes, "auto", ()) == (
        given.memory,
        given.cpus,
        given.processes,
        given.disk,
        given.limits,
        tuple(given.preload),
    )


def test_a_refusal_says_all_that_is_wrong(world: World) -> None:
    """With the terms, the policy, and what no tenant may have; if one thing is wrong, only that."""
    user = world.user("acme")
    metadata = (("authorization", f"Bearer {user.token}"),)
    policy = runtime_pb2.Policy(memory=1, processes=2, limits="none")
    wrong = platform_pb2.CreateRuntimeRequest(name="rt_x", lease=-1, policy=policy)
    stub = PlatformServiceStub(user.channel)
    told = refused(lambda: stub.CreateRuntime(wrong, metadata=metadata))
    assert grpc.StatusCode.INVALID_ARGUMENT == told.code
    assert told.text.startswith("5 things are wrong: (1) ")
    for part in (
        "64 MiB of memory",
        "from 8 to",
        "unknown limits",
        "given by the platform",
        "a lease is of 0",
    ):
        assert part in told.text
    weaker = BARE_TERMS | {"isolation": "none", "limits": "watchdog"}
    both = refused(lambda: user.create("x", SandboxPolicy(**weaker)))
    assert (grpc.StatusCode.FAILED_PRECONDITION, True) == (both.code, "2 things are wrong" in both.text)
    alone = refused(lambda: user.create("x", SandboxPolicy(**BARE_TERMS, limits="watchdog")))
    assert "no tenant chooses weaker limits" in alone.text
    assert "things are wrong" not in alone.text
