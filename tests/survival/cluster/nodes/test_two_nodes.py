"""A platform on a Ray cluster that is not its own: values and teams across its machines, and one that is killed.

With TLS on all connections, as between real machines.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.support.cluster.foreign import RayMachine
from tests.support.cluster.long_cell import Running, check_whole
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill
from tests.waiting import until

import cenote
from cenote import PythonRuntime, SandboxPolicy, Variable
from cenote.platform_team import ModelSpec
from cenote.runtime.remote.address import AUTHORITY
from cenote_security.errors import (
    RuntimeLostError,
    UnavailableError,
    UnknownReferenceError,
    UnknownRuntimeError,
)
from cenote_worker.descriptor_store.client import DescriptorStoreClient
from cenote_worker.node.machine import Carrier, node_of
from cenote_worker.node.ray.value_copies import PIECE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
"""The first test waits for all processes of a cluster to start."""

SMALL = SandboxPolicy(preload=("numpy",), memory="512MiB", snapshots="none", tracking=False)

LOSS_SECONDS = 120.0
"""Within which a lost machine is reported, however busy this one is: Ray takes ten to thirty to detect it."""

MAKE = "import numpy as np\ndata = np.arange(2_000_000)"
SUM = "1999999000000"


class Machines:
    """Two machines of a cluster and a platform that has joined it: the second one joined after the platform."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self._opened = opened
        self.platform = StandingPlatform(folder)
        self.platform.environment[AUTHORITY] = authority = str(self.platform.state / "tls" / "ca.pem")
        opened.enter_context(pytest.MonkeyPatch.context()).setenv(AUTHORITY, authority)
        self.head = self._machine("")
        opened.callback(self._end)
        self.up()
        self.second = self._machine(self.head.address)
        until(lambda: 2 == len(self.nodes()))

    def up(self) -> None:
        self.platform.up("--tls", "--ray-address", self.head.address)

    def _machine(self, head: str) -> RayMachine:
        machine = RayMachine(self.platform.environment, head)
        self._opened.callback(machine.end)
        machine.wait()
        return machine

    def _end(self) -> None:
        """Cleans up, whether the tests failed or not; before the cluster ends, which the platform would see as a
        failure."""
        self.platform.command("down")

    def again(self) -> None:
        """Restarts Ray on the second machine."""
        self.second = self._machine(self.head.address)

    @property
    def here(self) -> cenote.Platform:
        return cenote.connect(self.platform.address, self.platform.token)

    def empty(self) -> bool:
        """Whether no machine has a runtime. Deletes all, also one that was being created at the last call."""
        for info in self.here.runtimes():
            with suppress(UnknownRuntimeError):
                self.here.delete(info.id)
        return not any(node.runtimes for node in self.here.describe().nodes if not node.silent)

    def nodes(self) -> list[str]:
        return [node.id for node in self.here.describe().nodes if not node.silent]

    @property
    def root(self) -> Path:
        (root,) = Path("/tmp").glob(f"cenote-{os.geteuid()}-{self.platform.joined['platform']}")
        return root

    def folder(self, machine: RayMachine) -> Path:
        """The folder of the node that belongs to the machine's raylet."""
        raylet = machine.raylet()
        carriers = {folder: Carrier.read(folder) for folder in self.root.glob("node-*")}
        (found,) = [folder for folder, by in carriers.items() if by is not None and by.pid == raylet]
        return found

    def runtime(self, machine: RayMachine, name: str) -> PythonRuntime:
        """A named runtime on that machine: the next try is placed elsewhere, because this one still exists."""
        node = node_of(self.folder(machine))
        for attempt in range(8):
            runtime = self.here.runtime(f"{name}-{attempt}", sandbox=SMALL)
            if node == self.here.find(f"{name}-{attempt}").node:
                return runtime
        raise AssertionError(f"nothing is placed on {node}")


@pytest.fixture(autouse=True)
def tidy(machines: Machines) -> Iterator[None]:
    """Each test begins without runtimes. What a returning machine brings back and its client could not end has a
    lease of a minute, and no caller waits for longer than that.
    """
    yield
    with suppress(AssertionError):
        until(machines.empty)
    until(machines.empty)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """In the end `cenote down` removes all that the platform had there, and leaves the cluster as it was."""
    with ExitStack() as opened:
        machines = Machines(tmp_path_factory.mktemp("two"), opened)
        yield machines
        root = machines.root
        assert "" == machines.platform.command("down").stderr
        check_nothing_is_left(machines, root)


OURS = ("ray::NodeAgent", "ray::RuntimeActor", "ray::NurseryActor")


def check_nothing_is_left(machines: Machines, root: Path) -> None:
    """Of the platform; the cluster continues."""
    both = machines.head, machines.second
    until(lambda: not [pid for machine in both for kind in OURS for pid in machine.processes(kind)])
    assert 2 == len({machine.raylet() for machine in both})
    assert not root.exists()


def values(folder: Path) -> list[str]:
    return [key.rpartition("/")[2] for key in kept(folder, "value/")]


def leases(folder: Path, holder: str) -> list[str]:
    """Leases of holders with this prefix."""
    return [key for key in kept(folder, "lease/") if holder in key]


def kept(folder: Path, prefix: str) -> list[str]:
    client = DescriptorStoreClient(folder)
    try:
        return client.keys(prefix)
    finally:
        client.close()


def test_a_machine_that_joins_later_gets_its_part(machines: Machines) -> None:
    """New runtimes go to the machine with the fewest."""
    with ExitStack() as opened:
        for number in range(4):
            runtime = PythonRuntime(
                sandbox=SMALL, address=machines.platform.address, token=machines.platform.token
            )
            assert str(number) == opened.enter_context(runtime).execute(f"{number}").value
        assert [2, 2] == [node.runtimes for node in machines.here.describe().nodes]
        shown = machines.platform.command("status", "--address", machines.platform.address).stdout
        assert 2 == shown.count(": 2 runtimes")


def test_a_value_crosses_once(machines: Machines) -> None:
    """Two consumers ask for it at the same time; a third one gets it while its origin hangs."""
    maker = machines.runtime(machines.head, "maker")
    users = [machines.runtime(machines.second, f"user{number}") for number in range(3)]
    assert maker.execute(MAKE).success
    former = values(machines.folder(machines.head))
    reference = maker.share("data")
    (shared,) = set(values(machines.folder(machines.head))) - set(former)
    both = [threading.Thread(target=user.inject, args=(Variable("data", reference),)) for user in users[:2]]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert [SUM, SUM] == [user.execute("int(data.sum())").value for user in users[:2]]
    assert shared in values(machines.folder(machines.second))
    (agent,) = machines.head.processes("ray::NodeAgent")
    os.kill(agent, signal.SIGSTOP)
    try:
        users[2].inject(Variable("data", reference))
        assert SUM == users[2].execute("data[0] = 0\nint(data.sum())").value
    finally:
        os.kill(agent, signal.SIGCONT)
    assert SUM == users[0].execute("int(data.sum())").value


def test_a_large_value_crosses_in_pieces(machines: Machines) -> None:
    """It arrives whole, including the partial last piece; its origin holds nothing for it any more."""
    maker, user = machines.runtime(machines.head, "maker"), machines.runtime(machines.second, "user")
    items = (2 * PIECE + 1_000_000) // 8
    assert maker.execute(f"import numpy as np\ndata = np.arange({items})").success
    reference = maker.share("data")
    user.inject(Variable("data", reference))
    assert "True" == user.execute(f"bool((data == __import__('numpy').arange({items})).all())").value
    until(lambda: not leases(machines.folder(machines.head), "on its way"))


LEAD = """
await one.run("make rows")
answer = await two.run("sum rows")
reply(answer.content)
"""


def code(text: str) -> str:
    return f"```python\n{text}\n```"


async def test_a_team_on_both_machines(machines: Machines) -> None:
    """Members are placed where there is space; a result is passed on by reference, from machine to machine."""
    team = machines.here.team("spread", sandbox=SandboxPolicy(preload=(), memory="256MiB"))
    team.add("lead", model=ModelSpec(script=[code(LEAD)]), lead=True)
    team.add("one", model=ModelSpec(script=[code("team.put('rows', list(range(100_000)))\nreply('made')")]))
    team.add("two", model=ModelSpec(script=[code("reply(str(sum(team.get('rows'))))")]))
    run = await asyncio.wait_for(team.run("See to it"), 90)
    assert "4999950000" == run.answer
    team.delete()


def test_an_agent_that_comes_back_knows_its_jails(machines: Machines) -> None:
    """The agent of a machine and all its runtime processes are killed while a cell runs."""
    runtime = machines.runtime(machines.second, "kept")
    assert runtime.execute("before = 13").success
    running = Running(runtime)
    kill(*machines.second.processes("ray::NodeAgent"), *machines.second.processes("ray::RuntimeActor"))
    check_whole(running)


class Lossy:
    """Before a machine is killed: runtimes on both, a value that only one has, and one that both have."""

    def __init__(self, machines: Machines) -> None:
        self.there = machines.runtime(machines.second, "there")
        self.here = machines.runtime(machines.head, "here")
        assert self.there.execute(f"{MAKE}\nbefore = 13").success
        self.only_there, self.copied = self.there.share("before"), self.there.share("data")
        self.here.inject(Variable("data", self.copied))


def test_a_machine_that_is_killed(machines: Machines) -> None:
    """Its runtimes are reported as lost to waiting and to new clients; the rest continues. If restarted in time it
    brings back named runtimes, cells and values included, except those deleted meanwhile.
    """
    lossy = Lossy(machines)
    doomed = machines.here.find(machines.runtime(machines.second, "doomed").name)
    descriptor_store = DescriptorStoreClient(machines.folder(machines.second))
    name = max(info.name for info in machines.here.runtimes() if info.name.startswith("there"))
    node, running = node_of(machines.folder(machines.second)), Running(lossy.there, lines=60)
    began = time.monotonic()
    kill(machines.second.raylet())
    check_creation(machines)
    assert isinstance(lost := running.result(), RuntimeLostError), lost
    assert f"node {node}, has left" in str(lost)
    assert time.monotonic() - began < LOSS_SECONDS
    check_loss(machines, lossy, name)
    machines.here.delete(doomed.id)
    assert descriptor_store.keys(f"runtime/{doomed.id}/")
    machines.again()
    until(lambda: node in machines.nodes())
    until(lambda: not descriptor_store.keys(f"runtime/{doomed.id}/"))
    descriptor_store.close()
    with machines.here.runtime(name) as back:
        assert "13" == back.execute("before").value
        back.inject(Variable("again", lossy.only_there))
        assert "13" == back.execute("again").value


def check_creation(machines: Machines) -> None:
    """A creation that went to the machine as it died may be refused or lost; the next one is not."""
    until = time.monotonic() + LOSS_SECONDS
    while True:
        where = {"address": machines.platform.address, "token": machines.platform.token}
        try:
            with PythonRuntime(sandbox=SMALL, **where) as other:
                assert "2" == other.execute("1 + 1").value
                return
        except (UnavailableError, RuntimeLostError):
            assert time.monotonic() < until


def check_loss(machines: Machines, lossy: Lossy, name: str) -> None:
    found = machines.here.find(name)
    assert ("lost", True) == (found.state, "has left" in found.reason)
    with pytest.raises(RuntimeLostError):
        lossy.there.execute("before")
    with pytest.raises(UnknownReferenceError, match="share again"):
        lossy.here.inject(Variable("before", lossy.only_there))
    assert SUM == lossy.here.execute("int(data.sum())").value
    lossy.here.inject(Variable("again", lossy.copied))
    assert SUM == lossy.here.execute("int(again.sum())").value


@pytest.mark.long
def test_down_in_place_of_a_gateway_that_was_killed(machines: Machines) -> None:
    """And of its watcher: the command joins the cluster itself."""
    machines.here.runtime("last", sandbox=SMALL).close()
    root = machines.root
    kill(machines.platform.watcher, machines.platform.gateway)
    assert "killed" in machines.platform.command("down").stderr
    check_nothing_is_left(machines, root)
    machines.up()
    until(lambda: 2 == len(machines.nodes()))
