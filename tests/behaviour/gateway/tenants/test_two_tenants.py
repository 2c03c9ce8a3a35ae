"""Two tenants of one platform, one of them hostile: it cannot see what the other has, by any request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tests.support.gateway.world import BARE, Refusal, User, World, refused

from cenote_proto.v1 import runtime_pb2
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.wire.failures import to_error

UNKNOWN = "rt_" + "0" * 32
NO_REFERENCE = "ref_" + "0" * 32


def masked(refusal: Refusal, *names: str) -> tuple[grpc.StatusCode, str]:
    """A refusal with the requested name masked, so that two of them can be compared."""
    text = refusal.text
    for name in names:
        text = text.replace(name, "IT")
    return refusal.code, text


def ended(user: User, runtime: str) -> tuple[grpc.StatusCode, str]:
    """How a connection to a runtime, by id, ends."""
    error = user.line(runtime).ended()
    return error.code, str(error).partition("details = ")[2].partition("\n")[0].replace(runtime, "IT")


@pytest.fixture
def tenants(either: World) -> tuple[User, User]:
    """The victim, who has data, and the attacker, who wants it."""
    return either.user("acme"), either.user("rival")


def test_another_tenants_runtime_is_not_there_by_any_name(tenants: tuple[User, User]) -> None:
    """By name, full name and id: description and deletion are refused with the text for a runtime that does not
    exist."""
    acme, rival = tenants
    secret = acme.create("secret")
    for ask in (rival.get, rival.delete):
        nobodys = masked(refused(lambda ask=ask: ask(UNKNOWN)), UNKNOWN)
        assert grpc.StatusCode.NOT_FOUND == nobodys[0]
        for name in ("secret", "acme/secret", secret.id):
            assert nobodys == masked(refused(lambda ask=ask, name=name: ask(name)), name)
    assert ([], ["secret"]) == (rival.names(), acme.names())
    assert "secret" == acme.get(secret.id).name


def test_a_name_is_taken_within_its_tenant_only(tenants: tuple[User, User]) -> None:
    """The other tenant gets its own runtime by that name, attached or not, and sees nothing of the first."""
    acme, rival = tenants
    theirs = acme.create("etl")
    line = acme.line(theirs)
    line.welcome()
    assert line.run("x = 'theirs'").success
    own = rival.create("etl", attach=True)
    assert theirs.id != own.id
    line = rival.line(own)
    line.welcome()
    assert "NameError" == line.run("x").error.type


def test_another_tenants_runtime_cannot_be_attached_to(tenants: tuple[User, User], either: World) -> None:
    """At the gateway, by its id: the error is the one for a runtime that does not exist."""
    acme, rival = tenants
    secret = acme.create("secret")
    assert grpc.StatusCode.NOT_FOUND == ended(rival, UNKNOWN)[0]
    assert ended(rival, UNKNOWN) == ended(rival, secret.id)


def test_a_capability_opens_one_runtime(world: World) -> None:
    """With one's own capability, other tenants' runtimes, one's own other runtimes, and none get the same answer."""
    acme, rival = world.user("acme"), world.user("rival")
    secret, own, second = acme.create("secret"), rival.create("own"), rival.create("second")
    answers = set()
    for runtime in (secret.id, second.id, UNKNOWN):
        answers.add(ended(world.holder(own.capability), runtime))  # at the gateway it is no token at all
        stranger = User(own.address, own.capability, rival.tenant)
        answers.add(ended(stranger, runtime))
        stranger.close()
    assert {grpc.StatusCode.UNAUTHENTICATED} == {code for code, _ in answers}
    assert 2 == len(answers)  # one answer at the gateway, one at the machine


def test_another_tenants_references_are_not_there(tenants: tuple[User, User]) -> None:
    """Described, held, released, read, listed or injected: the error is the one for a missing reference."""
    acme, rival = tenants
    reference = acme.share(acme.create("secret"), "'treasure'")
    for ask in (rival.reference, rival.hold, rival.release, rival.read):
        nobodys = masked(refused(lambda ask=ask: ask(NO_REFERENCE)), NO_REFERENCE)
        assert grpc.StatusCode.NOT_FOUND == nobodys[0]
        assert nobodys == masked(refused(lambda ask=ask: ask(reference)), reference)
    assert [] == list(rival.references().references)
    assert [reference] == [each.id for each in acme.references().references]
    assert b"treasure" in acme.read(reference)


def test_another_tenants_reference_cannot_be_injected(tenants: tuple[User, User]) -> None:
    """Into a runtime of one's own: the error text is the one for a reference that does not exist."""
    acme, rival = tenants
    reference = acme.share(acme.create("secret"), "'treasure'")
    line = rival.line(rival.create("own"))
    line.welcome()
    answers = []
    for name in (NO_REFERENCE, reference):
        frame = line.answer(line.send(injection=runtime_pb2.Injection(reference=name, name="loot")))
        answers.append(str(to_error(frame.failure)).replace(name, "IT"))
    assert answers[0] == answers[1]
    assert "NameError" == line.run("loot").error.type


def calls(user: User) -> dict[str, Callable[[], Any]]:
    """One call of each kind."""
    return {
        "describe": user.describe,
        "create": user.create,
        "get": lambda: user.get("x"),
        "list": user.page,
        "delete": lambda: user.delete("x"),
        "reference": lambda: user.reference("x"),
        "hold": lambda: user.hold("x"),
        "release": lambda: user.release("x"),
        "read": lambda: user.read("x"),
        "references": user.references,
    }


def test_tokens_that_are_not_good_open_nothing(world: World) -> None:
    """None, garbage, another platform's, expired, revoked, of a closed tenant: each call is refused, streams too."""
    closed = world.user("closed")
    world.stores.tenants.close("closed")
    revoked = world.user("acme")
    world.stores.tokens.revoke(revoked.tenant, revoked.token_id)
    expired = world.user("acme", lifetime=1e-9)
    wrong = world.holder(revoked.token[:-1] + ("0" if revoked.token[-1] != "0" else "1"))
    for user in (world.holder(""), world.holder("garbage"), wrong, expired, revoked, closed):
        for call, ask in calls(user).items():
            assert (call, grpc.StatusCode.UNAUTHENTICATED) == (call, refused(ask).code)
        assert grpc.StatusCode.UNAUTHENTICATED == ended(user, UNKNOWN)[0]


def test_a_revoked_token_opens_nothing_from_then_on(either: World) -> None:
    """Also where it was valid a moment ago."""
    acme = either.user("acme")
    acme.create("etl")
    either.stores.tokens.revoke(acme.tenant, acme.token_id)
    assert grpc.StatusCode.UNAUTHENTICATED == refused(acme.page).code


def test_a_stream_through_the_gateway_ends_with_its_token(make_world: Callable[..., World]) -> None:
    """By itself, not at the tenant's next request; streams of other tokens go on."""
    world = make_world(relayed=True)
    acme, other = world.user("acme"), world.user("acme")
    made = acme.create("etl")
    line, others = acme.line(made, "one"), other.line(made, "other")
    line.welcome(), others.welcome()
    world.stores.tokens.revoke(acme.tenant, acme.token_id)
    assert grpc.StatusCode.UNAUTHENTICATED == line.ended().code
    assert "1" == others.run("1").value


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("runtimes:read", {"get", "list"}),
        ("runtimes:write", {"create", "delete"}),
        ("references", {"reference", "hold", "release", "read", "references"}),
        ("admin", set()),
        ("machines", set()),
    ],
)
def test_a_scope_is_good_for_its_own_calls(world: World, scope: str, allowed: set[str]) -> None:
    """Every other call is refused before it is examined; a token may always ask for its own identity."""
    user = world.user("acme", [scope])
    open_calls = set()
    for call, ask in calls(user).items():
        try:
            ask()
            open_calls.add(call)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.PERMISSION_DENIED:
                open_calls.add(call)
    assert allowed | {"describe"} == open_calls


def test_a_reader_runs_nothing(either: World) -> None:
    """The scopes of a token apply in the runtime too, relayed and direct."""
    acme, reader = either.user("acme"), either.user("acme", ["runtimes:read"])
    acme.create("etl")
    line = reader.line(reader.get("etl"))
    line.welcome()
    frame = line.answer(line.cell("1"))
    assert "read, not run" in str(to_error(frame.failure))


def test_a_reader_joins_what_is_there(either: World) -> None:
    """By its name, like other clients; it creates nothing, and deletes nothing that others may want back."""
    acme, reader = either.user("acme"), either.user("acme", ["runtimes:read"])
    made = acme.create("etl")
    joined = reader.create("etl", attach=True)
    assert made.id == joined.id
    line = reader.line(joined)
    line.welcome()
    assert line.answer(line.send(start=runtime_pb2.Start())).HasField("started")
    for ask in (
        lambda: reader.create("other", attach=True),
        lambda: reader.create("etl"),
        lambda: reader.create(attach=True),
        lambda: reader.create("etl", attach=True, partial=True),
    ):
        refusal = refused(ask)
        assert grpc.StatusCode.PERMISSION_DENIED == refusal.code
        assert "no scope 'runtimes:write'" in refusal.text
    assert ["etl"] == acme.names()


def test_quotas_are_each_tenants_own(world: World) -> None:
    """What exceeds them is refused and leaves nothing; a deletion frees quota; other tenants are not affected."""
    acme, rival = world.user("acme"), world.user("rival")
    world.stores.quotas.set_limit(acme.tenant, "runtimes", 2)  # type: ignore[arg-type]
    acme.create("one"), acme.create("two")
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == refused(lambda: acme.create("three")).code
    assert ["one", "two"] == acme.names()
    assert "three" == rival.create("three").name
    acme.delete("one")
    assert "three" == acme.create("three").name


def test_memory_is_promised_within_the_quota(world: World) -> None:
    """The policies' memory counts, before a jail exists."""
    acme = world.user("acme")
    world.stores.quotas.set_limit(acme.tenant, "memory", 3 * BARE.memory_bytes)  # type: ignore[arg-type]
    for name in "abc":
        acme.create(name)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == refused(lambda: acme.create("d")).code


@pytest.mark.sweep
@pytest.mark.parametrize(
    "policy",
    [
        SandboxPolicy(isolation="none", preload=()),
        SandboxPolicy(isolation="landlock", preload=()),
        SandboxPolicy(limits="watchdog", preload=()),
        SandboxPolicy(cpus=1e12, preload=()),
        SandboxPolicy(output=64 * 2**20 + 1, preload=()),
        SandboxPolicy(mounts=[Mount(source="/etc")], preload=()),
        SandboxPolicy(preload=["antigravity"]),
        SandboxPolicy(preload=(), env={"LONG": "x" * 70_000}),
    ],
    ids=["no-walls", "weaker-walls", "weaker-limits", "cpus", "output", "mounts", "preload", "long"],
)
def test_no_policy_reaches_or_weakens_the_machines(world: World, policy: SandboxPolicy) -> None:
    """What a user may choose on their own machine is not allowed on a platform."""
    acme = world.user("acme")
    assert grpc.StatusCode.FAILED_PRECONDITION == refused(lambda: acme.create("x", policy)).code
    assert [] == acme.names()


def test_the_machines_are_seen_by_operators_only(world: World) -> None:
    """The total load of the platform is not shown to tenants."""
    acme, operator = world.user("acme"), world.user("ops", ["machines"])
    acme.create("etl")
    assert [] == list(acme.describe().nodes)
    assert [("local", 1)] == [(node.id, node.runtimes) for node in operator.describe().nodes]


def test_no_answer_tells_where_the_platform_keeps_things(world: World) -> None:
    """When its own records fail, the caller gets an error without paths."""
    acme = world.user("acme")
    world.stores.tokens._database.close()
    refusal = refused(acme.page)
    assert grpc.StatusCode.UNAVAILABLE == refusal.code
    assert str(world.state.path) not in refusal.text


def test_relayed_runtimes_have_no_address(make_world: Callable[..., World]) -> None:
    """Clients of a relaying gateway learn nothing of machines, and get no credential that opens them."""
    acme = make_world(relayed=True).user("acme")
    made = acme.create("etl")
    assert ("", "", "") == (made.address, made.capability, made.node)


def test_looking_for_anothers_runtime_takes_no_other_way(world: World) -> None:
    """For another tenant's runtime the database gets the same queries, as often, as for a missing one: timing cannot
    tell them apart."""
    acme, rival = world.user("acme"), world.user("rival")
    secret = acme.create("secret")
    asked: list[str] = []
    world.stores.tokens._database._session._connection.set_trace_callback(asked.append)
    ways = []
    for name in (secret.id, UNKNOWN):
        refused(lambda name=name: rival.get(name))
        ways.append([statement.replace(name, "...") for statement in asked if name in statement])
    assert ways[0] == ways[1] != []
