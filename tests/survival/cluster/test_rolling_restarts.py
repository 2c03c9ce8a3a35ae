"""The gateway, a node agent and a machine are replaced one after another while runtimes work.

No acknowledged step is lost, none runs twice, and no cell is interrupted.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.cluster.foreign import RayMachine
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill
from tests.waiting import until

import cenote
from cenote import PythonRuntime, SandboxPolicy
from cenote_security.errors import CenoteError, UnavailableError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = SandboxPolicy(preload=(), memory="256MiB", tracking=False)

CELL = "import time\ntime.sleep(0.1)\ncount += 1\ncount"
"""Long beside the pause between two cells: nearly always one is under way."""


class Counting:
    """A client that counts in a runtime, one cell after the other, until it is ended."""

    def __init__(self, runtime: PythonRuntime) -> None:
        self.answers: list[int] = []
        self.failures: list[str] = []
        self._runtime = runtime
        self._ending = threading.Event()
        assert runtime.execute("count = 0").success
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set() and not self.failures:
            try:
                result = self._runtime.execute(CELL)
            except CenoteError as error:
                self.failures.append(repr(error))
            else:
                self.answers.append(int(result.value or -1))
                if not result.success:
                    self.failures.append(str(result.error))

    def goes_on(self) -> None:
        """Waits until cells that began later have ended."""
        before = len(self.answers)
        until(lambda: self.failures or len(self.answers) > before + 2)
        assert [] == self.failures

    def end(self) -> None:
        """Each answered cell ran once, and is in the state."""
        self._ending.set()
        self._thread.join(90)
        assert [] == self.failures
        assert [*range(1, len(self.answers) + 1)] == self.answers
        assert str(len(self.answers)) == self._runtime.execute("count").value


class Rolling:
    """A cluster, a platform on it, and clients that work: in durable runtimes, and in one that is not."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self._opened = opened
        self._options = ("--store", str(folder / "states"), "--keep-runtimes", "--ray-address")
        self.platform = StandingPlatform(folder)
        self.head = self.machine("")
        opened.callback(self._end)
        self.platform.up(*self._options, self.head.address)
        self.clients: dict[str, Counting] = {}

    def machine(self, head: str) -> RayMachine:
        machine = RayMachine(self.platform.environment, head)
        self._opened.callback(machine.end)
        machine.wait()
        return machine

    def _end(self) -> None:
        """That the gateway left its runtimes there is no failure; now they end."""
        assert "" == self.platform.command("down").stderr
        until(lambda: not self.head.processes("ray::RuntimeActor"))

    @property
    def here(self) -> cenote.Platform:
        return cenote.connect(self.platform.address, self.platform.token)

    def nodes(self) -> list[str]:
        """Those that answer; none while the platform waits for a busy machine's first agent."""
        try:
            return [node.id for node in self.here.describe().nodes if not node.silent]
        except UnavailableError:
            return []

    def runtime(self, name: str, node: str, **options: bool) -> PythonRuntime:
        """A runtime on that machine. Each earlier try was placed elsewhere, and is removed once this one is there."""
        with ExitStack() as elsewhere:
            for attempt in range(8):
                runtime = self.here.runtime(f"{name}-{attempt}", sandbox=SMALL, **options)
                found = self.here.find(runtime.name)
                if node == found.node:
                    return runtime
                elsewhere.callback(self.here.delete, found.id)
        raise AssertionError(f"nothing is placed on {node}")

    def begin(self, name: str, node: str, **options: bool) -> str:
        """The runtime's name."""
        runtime = self.runtime(name, node, **options)
        self.clients[runtime.name] = Counting(runtime)
        return runtime.name

    def all_go_on(self) -> None:
        for client in self.clients.values():
            client.goes_on()

    def replace_gateway(self) -> None:
        """Ends it as a service manager does, and starts another one at the same address."""
        former, watcher = self.platform.gateway, self.platform.watcher
        os.kill(watcher, signal.SIGTERM)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (former, watcher)))
        port = self.platform.address.rpartition(":")[2]
        self.platform.up("--port", port, *self._options, self.head.address)

    def drain(self, node: str) -> tuple[int, list[str]]:
        """The exit status, and the names of what is left."""
        words = ("node", "drain", node, "--address", self.platform.address, "--wait", "400", "--json")
        command = self.platform.begin(*words)
        output, errors = command.communicate(timeout=480)
        assert command.returncode in (0, 1), errors
        return command.returncode, [one["name"] for one in json.loads(output)["runtimes"]]


@pytest.fixture
def rolling(tmp_path: Path) -> Iterator[Rolling]:
    with ExitStack() as opened:
        yield Rolling(tmp_path, opened)


def test_each_part_is_replaced_under_load(rolling: Rolling) -> None:
    (first,) = until(rolling.nodes)
    second_machine = rolling.machine(rolling.head.address)
    until(lambda: 2 == len(rolling.nodes()))
    (second,) = {*rolling.nodes()} - {first}
    rolling.begin("stays", first)
    moves = rolling.begin("moves", second, durable=True)
    idle = rolling.runtime("idle", second)
    rolling.all_go_on()

    rolling.replace_gateway()
    rolling.all_go_on()

    kill(*second_machine.processes("ray::NodeAgent"))
    rolling.all_go_on()

    rolling.machine(rolling.head.address)
    until(lambda: 3 == len(rolling.nodes()))
    assert (1, [idle.name]) == rolling.drain(second)
    rolling.all_go_on()
    assert second != rolling.here.find(moves).node
    rolling.here.delete(rolling.here.find(idle.name).id)
    assert (0, []) == rolling.drain(second)
    assert second != rolling.here.find(rolling.here.runtime("later", sandbox=SMALL).name).node

    second_machine.end()
    until(lambda: second not in rolling.nodes())
    rolling.all_go_on()
    for client in rolling.clients.values():
        client.end()
