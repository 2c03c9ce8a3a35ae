"""Durable runtimes of a platform: they survive a restart, sleep when idle, and belong to one tenant."""

from __future__ import annotations

import platform
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.behaviour.checkpoints.test_image_seals import image
from tests.support.gateway.world import User, World, refused
from tests.waiting import until

from cenote import Function, PythonRuntime, SandboxPolicy, Variable, connect
from cenote.connection import Platform
from cenote.gateway.machines.local_nodes import _quietly
from cenote.gateway.store.state_locations import StateLocations
from cenote.gateway.values.quota import Quota
from cenote.runtime import NotDurableError
from cenote_security.errors import JailLostError, UnavailableError, UsageError
from cenote_worker.checkpoints.retention import Retention
from cenote_worker.node.node import HibernationThreads

BARE = SandboxPolicy(preload=(), memory="256MiB", snapshots="none")


class Owner:
    """A user of a tenant, over all platforms of one state folder; closed with them."""

    def __init__(self, world: World, tenant: str = "acme") -> None:
        self.world = world
        self.user: User = world.user(tenant)
        self._token, self._tenant = self.user.token, self.user.tenant
        self._runtimes: list[PythonRuntime] = []

    @property
    def platform(self) -> Platform:
        return connect(self.world.address, self._token)

    def runtime(self, name: str = "r", **options: Any) -> PythonRuntime:
        options = {"durable": True, "sandbox": BARE, **options}
        self._runtimes.append(self.platform.runtime(name, **options))
        return self._runtimes[-1]

    def reopen(self) -> None:
        """Ends the platform, and starts it again."""
        self.close()
        self.world.reopen()
        self.user = self.world.holder(self._token, self._tenant)

    def state(self, name: str = "r") -> str:
        return self.platform.find(name).state

    @property
    def folders(self) -> list[str]:
        """The folders of this tenant's runtimes in the store."""
        store = self.world.state.store / self._tenant
        return sorted(path.name for path in store.glob("*") if path.is_dir())

    def close(self) -> None:
        for runtime in self._runtimes:
            runtime.close()
        self._runtimes.clear()


@pytest.fixture
def owner(world: World) -> Iterator[Owner]:
    owner = Owner(world)
    yield owner
    owner.close()


def test_it_goes_on_from_no_older_state_than_what_was_acknowledged(owner: Owner) -> None:
    """An older snapshot stays after a crash, together with a stored state with all steps."""
    runtime = owner.runtime(sandbox=SandboxPolicy(preload=(), memory="256MiB"))
    runtime.execute("x = [1]")
    runtime.execute(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\nx.append(2)"
    )
    crashed = runtime.execute("x.append(3); import os; os._exit(1)")
    assert "rolled_back" == crashed.state, crashed
    assert "[1, 2]" == runtime.execute("x").value


@pytest.mark.slow
def test_it_is_there_again(either: World) -> None:
    """With its names, its files, its record, and its step numbers."""
    owner = Owner(either)
    runtime = owner.runtime()
    assert runtime.execute("x = [1]; alias = x\nopen('kept', 'w').write('text')").success
    runtime.inject(Variable("given", {"a": 1}))
    owner.reopen()
    assert ("hibernated", 2) == (owner.state(), owner.platform.find("r").steps)
    again = owner.runtime()
    result = again.execute("x.append(2); alias, given, open('kept').read()")
    assert ("([1, 2], {'a': 1}, 'text')", 3) == (result.value, result.step)
    assert [(1, "cell"), (2, "injection"), (3, "cell")] == [
        (step.number, step.kind) for step in again.state.history
    ]
    owner.close()


def test_it_sleeps_when_nobody_calls(owner: Owner) -> None:
    """Its jail ends, also while its client is connected; the next call only takes longer."""
    runtime = owner.runtime(hibernate_after=0.1)
    runtime.execute("x = [1]")
    until(lambda: owner.state() == "hibernated")
    assert 1 == owner.platform.find("r").clients
    assert "[1]" == runtime.execute("x").value  # it may be asleep again by now
    runtime.close()
    until(lambda: owner.state() == "hibernated")
    until(
        lambda: 0 == sum(node.runtimes for node in owner.world.nodes.describe())
    )  # it may have slept before
    assert "[1]" == owner.runtime().execute("x").value


@pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")
def test_what_wakes_is_the_process_that_slept(owner: Owner) -> None:
    """With its client connected, and once no node has the runtime. By value, the network would lack what its library
    does not pickle, and the result would say so."""
    code = "import ipaddress\nnet = ipaddress.ip_network('10.0.0.0/8')\nassert net.hostmask\nnumbers = iter(range(9))"
    look = "'hostmask' in vars(net), next(numbers)"
    runtime = owner.runtime(hibernate_after=0.1)
    runtime.execute(code)
    until(lambda: owner.state() == "hibernated")
    woken = runtime.execute(look)
    assert ("(True, 0)", ()) == (woken.value, woken.news)
    runtime.close()
    until(lambda: owner.state() == "hibernated")
    until(lambda: 0 == sum(node.runtimes for node in owner.world.nodes.describe()))
    again = owner.runtime().execute(look)
    assert ("(True, 1)", ()) == (again.value, again.news)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")
def test_the_process_of_another_tenant_does_not_wake(world: World) -> None:
    """Where a writer of the store has put its image, with the seal that it has, in the place of the right one."""
    code = "import ipaddress\nnet = ipaddress.ip_network('10.0.0.0/8')\nassert net.hostmask\nx = {}"
    owners = [Owner(world, tenant) for tenant in ("acme", "globex")]
    for number, owner in enumerate(owners):
        owner.runtime(hibernate_after=0.1).execute(code.format(number))
        owner.close()
    until(lambda: 0 == sum(node.runtimes for node in world.nodes.describe()))
    stores = [world.state.store / owner.user.tenant for owner in owners]
    (mine,), (theirs,) = (owner.folders for owner in owners)
    image(stores[0], mine).write_bytes(image(stores[1], theirs).read_bytes())
    looks = [owner.runtime().execute("x, 'hostmask' in vars(net)").value for owner in owners]
    assert ["(0, False)", "(1, True)"] == looks
    for owner in owners:
        owner.close()


def test_one_that_would_lose_something_stays_awake(owner: Owner) -> None:
    """A generator that reads the clock cannot be stored or recreated: the result says so, and the jail goes on."""
    runtime, other = owner.runtime(hibernate_after=0.1), owner.runtime("other", hibernate_after=0.1)
    result = runtime.execute("import time; g = (n if time.time() else 0 for n in range(3)); next(g)")
    assert "`g` is not durable" in "".join(result.news)
    other.execute("x = 1")
    until(lambda: owner.state("other") == "hibernated")
    assert "ready" == owner.state()
    assert "1" == runtime.execute("next(g)").value


def test_what_cannot_be_given_back_is_said_first(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started, as there is no image of the process; a client that accepts the loss has to say so."""
    monkeypatch.setattr("cenote_worker.runtime.state.checkpoints.REST_SECONDS", 1e6)
    runtime = owner.runtime()
    runtime.execute("import time; x = 1; g = (time.time() for n in range(3))")
    runtime.execute("h = (n for n in range(3))")
    owner.reopen()
    assert "g: " in refused(lambda: owner.user.get("r")).text
    assert "hibernated" == owner.state()
    again = owner.runtime(partial=True)
    assert "(1, False, 0)" == again.execute("x, 'g' in globals(), next(h)").value


@pytest.mark.slow
def test_what_no_store_can_have_is_made_again(owner: Owner) -> None:
    """A generator continues where it was, after sleep and after a full restart, more than once."""
    runtime = owner.runtime(hibernate_after=0.1)
    assert () == runtime.execute("log = [5]; g = (n for n in log); next(g)").news
    until(lambda: owner.state() == "hibernated")
    assert "7" == runtime.execute("log.append(7); next(g)").value
    owner.reopen()
    assert "9" == owner.runtime().execute("log.append(9); next(g)").value


def test_one_that_does_not_keep_everything_hibernates_too(owner: Owner) -> None:
    """Without being durable: its state is stored when it falls asleep."""
    runtime = owner.runtime(durable=False, hibernate_after=0.1)
    runtime.execute("x = [1]")
    until(lambda: owner.state() == "hibernated")
    assert "[1]" == runtime.execute("x").value


def test_one_whose_jail_ends_on_its_way_to_sleep(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when it is removed at that moment: the hibernation loop continues with the next runtime."""

    def lost(*_: object) -> None:
        raise JailLostError("the runtime was closed")

    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    owner.runtime().execute("x = 1")
    monkeypatch.setattr("cenote_worker.runtime.state.checkpoints.collected", lost)
    rest = partial(owner.world.nodes.rest, owner.user.get("r").id)
    gone_on = threading.Event()
    HibernationThreads().begin({"acme": [partial(_quietly, rest), gone_on.set]})
    until(lambda: raised or gone_on.is_set())
    assert [] == raised


def test_a_reset_is_stored(owner: Owner) -> None:
    """The state before it does not come back."""
    runtime = owner.runtime()
    runtime.execute("x = 1")
    runtime.reset()
    owner.reopen()
    assert "False" == owner.runtime().execute("'x' in globals()").value


def test_a_reset_that_cannot_be_stored(owner: Owner) -> None:
    """The reset was done; the caller learns that it was not stored, and not that it was refused."""
    runtime = owner.runtime()
    runtime.execute("x = 1")
    (folder,) = (owner.world.state.store / owner.user.tenant).glob("*")
    (folder / f"{2:012d}.part").mkdir()
    with pytest.raises(NotDurableError, match="the platform's store") as caught:
        runtime.reset()
    assert caught.value.outcome is None
    (folder / f"{2:012d}.part").rmdir()
    assert "False" == runtime.execute("'x' in globals()").value


def test_it_goes_when_it_is_removed(owner: Owner) -> None:
    """Asleep or not, nothing of it stays in the store; records of other runtimes there stay."""
    owner.runtime("a").execute("x = 1")
    owner.runtime("b", durable=False).execute("x = 1")
    owner.reopen()
    owner.runtime("c").execute("x = 1")
    assert 3 == len(owner.folders)
    for name in "abc":
        owner.platform.delete(name)
    assert [] == owner.folders
    assert "[]" == owner.runtime("a").execute("[n for n in globals() if n == 'x']").value


def test_tenants_have_parts_of_their_own(owner: Owner) -> None:
    """A tenant's runtime is not found by another tenant, asleep or not, and its name is free for that tenant."""
    owner.runtime().execute("x = 1")
    owner.reopen()
    rival = Owner(owner.world, "rival")
    assert "there is no runtime 'r'" in refused(lambda: rival.user.get("r")).text
    found = owner.user.get("r").id
    assert "there is no runtime" in refused(lambda: rival.user.get(found)).text
    assert "False" == rival.runtime().execute("'x' in globals()").value
    assert [1, 1] == [len(owner.folders), len(rival.folders)]
    rival.close()


def test_stored_states_count(owner: Owner) -> None:
    """The result says what did not fit, and that is missing later; what was stored before stays."""
    owner.world.stores.quotas.set_limit(owner.user.tenant, Quota.STORED, 300_000)
    runtime = owner.runtime()
    runtime.execute("x = 1")
    with pytest.raises(NotDurableError, match="stored") as caught:
        runtime.execute("import os; x = os.urandom(400_000); len(x)")
    assert "400000" == caught.value.outcome.value
    owner.reopen()
    assert "1" == owner.runtime().execute("x").value


def test_a_failing_store(owner: Owner) -> None:
    """The result is returned and says so, without the location of the platform's store."""
    runtime = owner.runtime()
    runtime.execute("x = 1")
    (folder,) = (owner.world.state.store / owner.user.tenant).glob("*")
    (folder / f"{2:012d}.part").mkdir()
    with pytest.raises(NotDurableError, match="the platform's store") as caught:
        runtime.execute("x = 2\nx")
    assert "2" == caught.value.outcome.value
    assert str(owner.world.state.path) not in str(caught.value)
    (folder / f"{2:012d}.part").rmdir()
    assert "2" == runtime.execute("x").value


@pytest.mark.parametrize("in_its_place", ["nothing", "an empty folder"])
def test_a_store_that_is_moved_away(owner: Owner, in_its_place: str) -> None:
    """Nothing is acknowledged as stored, no runtime is made, no folder is begun anew; put back, it goes on."""
    runtime = owner.runtime()
    runtime.execute("x = 1")
    store, elsewhere = owner.world.state.store, owner.world.state.path / "elsewhere"
    store.rename(elsewhere)
    if in_its_place != "nothing":
        store.mkdir()
    with pytest.raises(NotDurableError) as caught:
        runtime.execute("x += 1\nx")
    assert "2" == caught.value.outcome.value
    with pytest.raises(UnavailableError, match="store of durable runtimes"):
        owner.runtime("other").execute("1")
    assert [] == list(store.glob("*"))
    if in_its_place != "nothing":
        store.rmdir()
    assert not store.exists()
    elsewhere.rename(store)
    assert "3" == runtime.execute("x += 1\nx").value
    owner.reopen()
    assert "3" == owner.runtime().execute("x").value


def test_another_store(owner: Owner) -> None:
    """A state that another store holds is missing: the runtime is not taken for one that never ran."""
    owner.runtime().execute("x = 1")
    store, elsewhere = owner.world.state.store, owner.world.state.path / "elsewhere"
    store.rename(elsewhere)
    owner.reopen()
    assert "nothing of this runtime is there" in refused(lambda: owner.user.get("r")).text
    shutil.rmtree(store)
    elsewhere.rename(store)
    owner.reopen()
    assert "1" == owner.runtime().execute("x").value


def test_no_store_that_all_machines_reach() -> None:
    """Nothing is durable there, rather than durable on one of them."""
    states = StateLocations("")
    states.check(Retention())
    with pytest.raises(UsageError, match="cenote up --store"):
        states.check(Retention(durable=True))
    with pytest.raises(UsageError, match="cenote up --store"):
        states.check(Retention(hibernate_after=5))


def test_what_makes_no_sense(owner: Owner) -> None:
    """A durable runtime has a name and no lease; an existing runtime that is not durable does not become durable."""
    assert "has a name" in refused(lambda: owner.user.create("", durable=True)).text
    assert "no lease" in refused(lambda: owner.user.create("r", durable=True, lease=5)).text
    assert "0 (for never)" in refused(lambda: owner.user.create("r", hibernate_after=-1)).text
    owner.user.create("r")
    assert "not durable" in refused(lambda: owner.user.create("r", durable=True, attach=True)).text
    with pytest.raises(UsageError, match="has a name"):
        PythonRuntime(address=owner.world.address, token=owner.user.token, durable=True)
    with pytest.raises(UsageError, match="leave out `store`"):
        PythonRuntime(address=owner.world.address, token=owner.user.token, store="x", name="r")


@pytest.mark.slow
def test_what_stays_with_clients(owner: Owner) -> None:
    """Stubs are restored. A returning client answers them; another one provides its own, and finds the values."""

    def client(answer: str) -> PythonRuntime:
        offered = [Function(lambda: answer, name="ask", host=True)]
        return PythonRuntime(
            address=owner.world.address,
            token=owner.user.token,
            name="r",
            durable=True,
            sandbox=BARE,
            functions=offered,
            variables=[Variable("x", 0)],
        )

    with client("first") as runtime:
        assert "('first', 1)" == runtime.execute("x += 1; ask(), x").value
    owner.reopen()
    assert "1" == owner.runtime().execute("x").value
    with client("second") as runtime:
        assert "('second', 2)" == runtime.execute("x += 1; ask(), x").value


def test_by_its_constructor(owner: Owner) -> None:
    """The same name gives the same runtime; it outlives its client."""
    arguments: dict[str, Any] = {"token": owner.user.token, "name": "mine", "durable": True, "sandbox": BARE}
    with PythonRuntime(address=owner.world.address, **arguments) as runtime:
        runtime.execute("x = 1")
    owner.reopen()
    with PythonRuntime(address=owner.world.address, **arguments) as runtime:
        assert "1" == runtime.execute("x").value
