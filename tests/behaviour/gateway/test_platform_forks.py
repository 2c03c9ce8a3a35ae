"""Forks of a platform's runtimes: names, quotas, records, permissions; all branches or none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import pytest
from tests.behaviour.gateway.test_durable_runtimes import BARE, Owner, until
from tests.support.gateway.world import User, World, refused
from tests.waiting import PATIENCE

from cenote import PythonRuntime, SandboxPolicy
from cenote.gateway.api.branches import Branches, ForkRequest
from cenote.gateway.api.runtime_registry import RuntimeRegistry
from cenote.gateway.audit.reader import entries
from cenote.gateway.values.quota import Quota
from cenote_security.auth.tokens import Scope
from cenote_security.errors import EntryExistsError, UnknownRuntimeError, UsageError
from cenote_worker.checkpoints.errors import IncompleteRestoreError
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.branches import MAX_BRANCHES, ForkOrder

SLOW_TO_COPY = """
class Slow:
    def __reduce__(self):
        import time
        time.sleep(0.5)
        return int, ()
x, slow = 1, Slow()
"""


@pytest.fixture
def owner(world: World) -> Iterator[Owner]:
    owner = Owner(world)
    yield owner
    owner.close()


@pytest.fixture
def parent(owner: Owner) -> PythonRuntime:
    """A runtime `r` that is not durable, in which `x` is 1."""
    runtime = owner.runtime(durable=False)
    runtime.execute("x = 1")
    return runtime


def value(owner: Owner, name: str, code: str) -> str | None:
    return owner.runtime(name, durable=False).execute(code).value


def _stored(owner: Owner) -> list[str]:
    """The states of the tenant's only stored runtime."""
    (folder,) = (owner.world.state.store / owner.user.tenant).iterdir()
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_branches_have_names_policy_and_parent(owner: Owner, parent: PythonRuntime) -> None:
    """Names are given, or chosen from the free ones; the policy is the parent's; lists show all of this."""
    given = owner.user.fork("r", count=2, names=["one", "two"])
    made_up = owner.user.fork("r", count=2)
    assert ["one", "two"] == [each.name for each in given]
    assert ["r-fork-1", "r-fork-2"] == [each.name for each in made_up]
    origin = {(each.origin.name, each.origin.step) for each in [*given, *made_up]}
    assert ({("r", 1)}, {owner.user.get("r").id}) == (origin, {each.origin.runtime for each in given})
    assert {BARE.memory_bytes} == {
        owner.platform.find(name).policy.memory_bytes for name in owner.user.names()
    }
    assert ("r", 1) == (owner.platform.find("two").parent, owner.platform.find("two").parent_step)
    assert "2" == value(owner, "two", "x + 1")
    assert ["fork-1", "fork-1-fork-1"] == [
        owner.user.fork("r", names=["fork-1"])[0].name,
        owner.user.fork("fork-1")[0].name,
    ]


def test_a_client_that_goes_straight_there(owner: Owner, parent: PythonRuntime) -> None:
    """Branches that a script forked end with it: closing deletes them, and they have a lease."""
    with ExitStack() as stack:
        branches = parent.fork(count=2)
        assert isinstance(branches, list)
        for branch in branches:
            stack.enter_context(branch)
            branch.execute("x += 1; y = [x]")
        assert ["r", "r-fork-1", "r-fork-2"] == owner.user.names()
        assert ("x", "y") == tuple(sorted(parent.merge(branches[1]).taken))
        assert "(2, [2])" == parent.execute("x, y").value
    assert ["r"] == owner.user.names()


def test_branches_with_names_stay(owner: Owner, parent: PythonRuntime) -> None:
    """Until they are deleted, like other named runtimes."""
    for branch in parent.fork(count=2, name="b"):
        branch.close()
    parent.fork(name="alone").close()
    assert ["alone", "b-1", "b-2", "r"] == owner.user.names()
    assert "1" == value(owner, "b-2", "x")


def test_any_client_merges_what_another_has_forked(owner: Owner, parent: PythonRuntime) -> None:
    """A platform knows where each runtime was forked."""
    owner.user.fork("r", names=["b"])
    branch = owner.runtime("b", durable=False)
    branch.execute("x = 5")
    assert ("x",) == parent.merge(branch).taken
    with pytest.raises(UsageError, match="branch"):
        branch.merge(parent)


def test_the_same_key_gives_the_same_branches(owner: Owner, parent: PythonRuntime) -> None:
    """However often it is sent; without a key each call creates new ones."""
    first, again = (owner.user.fork("r", count=2, key="k") for _ in range(2))
    assert [each.id for each in first] == [each.id for each in again]
    assert 3 == len(owner.user.names())


def test_all_or_none(owner: Owner, parent: PythonRuntime) -> None:
    """Where one name is taken, or one branch exceeds the quota, none is left, and no quota is used."""
    quotas, tenant = owner.world.stores.quotas, owner.user.tenant
    used = quotas.used(tenant)
    quotas.set_limit(tenant, Quota.RUNTIMES, 3)
    for request, code in (
        ({"count": 3}, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ({"count": 2, "names": ["a", "r"]}, grpc.StatusCode.ALREADY_EXISTS),
        ({"count": 2, "names": ["a", "a"]}, grpc.StatusCode.ALREADY_EXISTS),
        ({"step": 77}, grpc.StatusCode.UNAVAILABLE),
        ({"count": 2, "names": ["a"]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"names": ["rt_a"]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"count": MAX_BRANCHES + 1}, grpc.StatusCode.INVALID_ARGUMENT),
    ):
        assert code == refused(lambda request=request: owner.user.fork("r", **request)).code, request
    assert (["r"], used) == (owner.user.names(), quotas.used(tenant))
    assert 2 == len(owner.user.fork("r", count=2))


def test_a_client_can_tell_a_taken_name(owner: Owner, parent: PythonRuntime) -> None:
    """From another wrong request, and which name it is: the client can choose another one."""
    with pytest.raises(EntryExistsError) as caught:
        parent.fork(name="r")
    assert ("runtime", "r") == (caught.value.kind, caught.value.name)


def test_a_branch_that_fails_to_start_takes_all_along(
    owner: Owner, parent: PythonRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Branches that were already served are ended; their rows and records are deleted."""
    started, start = [], HostedRuntime.start

    def failing(runtime: HostedRuntime) -> None:
        start(runtime)
        started.append(runtime)
        if len(started) == 2:
            raise OSError("no room")

    monkeypatch.setattr(HostedRuntime, "start", failing)
    refused(lambda: owner.user.fork("r", count=3))
    until(lambda: not any(runtime.running for runtime in started))
    assert len(started) >= 2
    records = owner.world.state.store / owner.user.tenant
    assert (["r"], [owner.user.get("r").id]) == (
        owner.user.names(),
        [path.name for path in records.iterdir()],
    )


def test_a_gateway_that_ends_in_the_middle_leaves_nothing(owner: Owner) -> None:
    """What it had begun to create is removed at its next start, together with its quotas."""
    owner.runtime().execute("x = 1")
    world, tenant = owner.world, owner.user.tenant
    used = world.stores.quotas.used(tenant)
    branches = Branches(world.stores, world.nodes, RuntimeRegistry(world.stores, world.nodes))
    principal = world.stores.tokens.authenticate(owner.user.token)
    branches.admit(principal, ForkRequest(name="r", order=ForkOrder(), count=2))
    assert 3 == len(owner.user.names())
    owner.reopen()
    until(lambda: owner.user.names() == ["r"])
    until(lambda: used == world.stores.quotas.used(tenant))  # quotas are recorded after the names


def test_another_tenants_runtime_cannot_be_forked(either: World) -> None:
    """By name and id: refused with the text for a missing runtime. A read-only token cannot fork either."""
    acme, rival = either.user("acme"), either.user("rival")
    secret = acme.create("secret")
    nobodys = refused(lambda: rival.fork("secret-2"))
    for name in ("secret", "acme/secret", secret.id):
        refusal = refused(lambda name=name: rival.fork(name))
        assert (nobodys.code, nobodys.text.replace("secret-2", name)) == (refusal.code, refusal.text)
    looking = either.user("acme", scopes=[Scope.RUNTIMES_READ])
    assert grpc.StatusCode.PERMISSION_DENIED == refused(lambda: looking.fork("secret")).code
    assert ([], ["secret"]) == (rival.names(), acme.names())


def test_a_key_is_its_tenants_own(either: World) -> None:
    """Another tenant's equal key does not find this tenant's branches."""
    users: list[User] = [either.user("acme"), either.user("rival")]
    for user in users:
        user.create("r")
    one, other = (user.fork("r", key="k")[0].id for user in users)
    assert one != other


def test_forks_are_on_record(owner: Owner, parent: PythonRuntime) -> None:
    """Who forked what, and the parent of each branch."""
    (branch,) = owner.user.fork("r")
    parent_id = owner.user.get("r").id
    found = [entry.event for entry in entries(owner.world.state.audit)]
    forked = [event for event in found if event.kind == "access" and event.facts["action"] == "fork"]
    assert [parent_id] == [event.runtime for event in forked]
    created = {event.runtime: event.facts for event in found if event.kind == "runtime.created"}
    assert parent_id == created[branch.id]["parent"]
    assert "parent" not in created[parent_id]


@pytest.mark.slow
def test_branches_of_a_durable_runtime(owner: Owner) -> None:
    """They are durable from their first moment, unless they have a lease; a sleeping parent is woken."""
    runtime = owner.runtime()
    runtime.execute("x = [1]; alias = x")
    assert 1 == runtime.hibernate().step
    owner.user.fork("r", names=["kept"])
    (passing,) = owner.user.fork("r", lease=60)
    assert (True, False) == (owner.platform.find("kept").durable, passing.durable)
    owner.reopen()
    assert "([1, 2], 2)" == owner.runtime("kept").execute("x.append(2); alias, len(x)").value
    assert "[1]" == owner.runtime().execute("x").value


@pytest.mark.slow
def test_branches_make_again_what_cannot_be_stored(owner: Owner) -> None:
    """A generator has its position in a branch, and in a branch that is restored from its own store."""
    runtime = owner.runtime()
    runtime.execute("x = [1, 2, 3]; g = (each * 2 for each in x)")
    runtime.execute("next(g)")
    owner.user.fork("r", names=["kept"])
    assert "4" == value(owner, "kept", "next(g)") == runtime.execute("next(g)").value
    owner.reopen()
    assert "([6], 3)" == owner.runtime("kept").execute("list(g), x[2]").value


@pytest.mark.slow
def test_a_fork_of_an_earlier_state_is_nobodys_step(owner: Owner) -> None:
    """Neither the parent's steps nor its stored states include the visit."""
    runtime = owner.runtime(sandbox=SandboxPolicy(preload=(), memory="256MiB"))
    for number in range(1, 4):
        runtime.execute(f"x = {number}")
    stored = _stored(owner)
    with runtime.fork(step=1) as branch:
        assert ("1", 4) == ((result := branch.execute("x")).value, result.step)
    assert stored == _stored(owner)
    assert [1, 2, 3] == [step.number for step in runtime.state.history]
    assert "3" == runtime.execute("x").value


@pytest.mark.slow
def test_nobodys_cell_runs_in_a_state_that_is_visited(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another client sends meanwhile waits, and runs in the present state; queries too."""
    runtime = owner.runtime(durable=False, sandbox=SandboxPolicy(preload=(), memory="256MiB"))
    assert runtime.execute(SLOW_TO_COPY).success
    runtime.execute("x = 2; del slow")
    other = owner.runtime(durable=False)
    other.execute("pass")
    hosted = owner.world.nodes._hosted[owner.user.get("r").id].runtime  # type: ignore[attr-defined]
    begun, away = threading.Event(), hosted.patches.away
    monkeypatch.setattr(hosted.patches, "away", lambda key: begun.set() or away(key))
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        forking = pool.submit(runtime.fork, step=1)
        assert begun.wait(PATIENCE)
        assert ("2", 4) == ((result := other.execute("x")).value, result.step)
        assert not hosted.patches.busy
        branch = stack.enter_context(forking.result())
        assert "1" == branch.execute("x").value
    assert [1, 2, 3, 4] == [step.number for step in runtime.state.steps]


def test_states_are_stored_when_their_owner_says_so(owner: Owner) -> None:
    """With a label, by number; the error for a runtime without stored states says how to get one."""
    runtime = owner.runtime()
    runtime.execute("x = 1")
    made = runtime.checkpoint("first")
    assert ("first", 1, True) == (made.label, made.step, made.complete)
    slept = runtime.hibernate()
    assert (made.step, "hibernated") == (slept.step, owner.state())
    assert "1" == runtime.execute("x").value
    other = owner.runtime("other", durable=False)
    for ask in (other.checkpoint, other.hibernate):
        with pytest.raises(UsageError, match="durable=True"):
            ask()
    with pytest.raises(UsageError, match="partial"):
        runtime.hibernate(partial=True)


@pytest.mark.slow
def test_a_stored_state_is_gone_back_to(owner: Owner) -> None:
    """By label or number, with names and files; the previous state is stored, and present after a full restart."""
    runtime = owner.runtime()
    runtime.execute("x = 1; open('f', 'w').write('one')")
    runtime.checkpoint("first")
    runtime.execute("x = 2; y = 3; open('f', 'w').write('two')")
    later = runtime.checkpoint()
    look = "x, 'y' in globals(), open('f').read()"
    with owner.platform.restore("r", "first") as again:
        assert ("(1, False, 'one')", 3) == ((result := again.execute(look)).value, result.step)
        assert 1 == again.state.history[2].parent
    assert "(1, False, 'one')" == runtime.execute(look).value
    owner.platform.restore("r", later.number).close()
    owner.reopen()
    assert "(2, True, 'two')" == owner.runtime().execute(look).value
    with pytest.raises(UsageError, match="nowhere"):
        owner.platform.restore("r", "nowhere")
    with pytest.raises(UnknownRuntimeError):
        owner.platform.restore("nobody", 1)


def test_a_runtime_that_works_is_not_put_to_sleep(owner: Owner) -> None:
    """A generator that no step recreates would be lost: the hibernation is refused and names it, and the jail goes
    on."""
    runtime = owner.runtime()
    runtime.execute("import time; g = (n if time.time() else 0 for n in range(3)); next(g)")
    with pytest.raises(IncompleteRestoreError, match="g: "):
        runtime.hibernate()
    assert "1" == runtime.execute("next(g)").value
