"""A node: a descriptor store, jails that wait in it, processes that supervise them and are killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
from tests.support.adoption.supervising import JAIL, NAME, POLICY, SEALS, SpareJails, boundless
from tests.support.hosted.listening import Heard, NoHosts
from tests.support.prepared import Prepared
from tests.waiting import PATIENCE

from cenote_worker.descriptor_store.client import DescriptorStoreClient, ensure_store
from cenote_worker.descriptor_store.message import close_all
from cenote_worker.execution.results import OnError
from cenote_worker.runtime.handover.stored_log import StoredHandoverLog
from cenote_worker.runtime.handover.takeover import Entries, adopt
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.storage import NO_STORAGE, RuntimeStorage
from cenote_worker.supervisor.account.worker_process import WorkerProcess, pid_of
from cenote_worker.supervisor.channels.host_calls import HostHandler
from cenote_worker.supervisor.start import start_ends

ROOT = Path(__file__).resolve().parents[3]


NUDGED = "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: os._exit(3))\n"
"""Tests end the worker explicitly from then on."""


class Victim:
    """A process that hosts the runtime."""

    def __init__(self, supervising: Prepared, folder: Path, how: str = "fresh", dies: str = "") -> None:
        """how, dies: see `supervising.main`."""
        their_input, own_output = os.pipe()
        own_input, their_output = os.pipe()
        streams = (their_input, their_output, sys.__stderr__.fileno())
        self.process = supervising.start((str(folder), how, dies), streams, os.environ, ROOT)
        os.close(their_input)
        os.close(their_output)
        self._pipes = ExitStack()
        self._input = self._pipes.enter_context(os.fdopen(own_output, "w"))
        self._output = self._pipes.enter_context(os.fdopen(own_input))
        self.printed: dict[str, str] = {}
        self._reports: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._output:
            if line.endswith("\n"):
                self._reports.put(json.loads(line))

    def tell(self, do: str, key: str, **arguments: object) -> None:
        print(json.dumps({"do": do, "key": key, **arguments}), file=self._input, flush=True)

    def wait_for(self, wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The next report that satisfies the condition."""
        while True:
            report = self.report(PATIENCE)
            if wanted(report):
                return report

    def report(self, seconds: float) -> dict[str, Any]:
        """The next report. Raises queue.Empty when there is none in time."""
        report = self._reports.get(timeout=seconds)
        self._note(report)
        return report

    def execute(self, code: str, key: str, timeout: float | None = None, on_error: OnError = "keep") -> None:
        self.tell("execute", key, code=code, timeout=timeout, on_error=on_error)

    def value(self, key: str) -> Any:
        return self.wait_for(lambda report: report["key"] == key and "done" in report)["done"]

    def heard(self, key: str, text: str) -> None:
        """Waits until that text was printed."""
        self.wait_for(lambda _report: text in self.printed.get(key, ""))

    def kill(self) -> None:
        """Kills it at an arbitrary instruction; the output reported by then is in `printed`."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        while not self._reports.empty():
            self._note(self._reports.get())
        self._pipes.close()

    def _note(self, report: dict[str, Any]) -> None:
        if "output" in report:
            key = report["key"]
            self.printed[key] = self.printed.get(key, "") + report["output"]


class Node:
    """descriptor_store: a client of the descriptor store. Everything that a node makes ends with it."""

    def __init__(self, folder: Path, until: ExitStack, supervising: Prepared) -> None:
        self.folder = folder
        self._supervising = supervising
        ensure_store(folder, linger=5.0)
        self.descriptor_store = DescriptorStoreClient(folder)
        assert (
            [] == self.descriptor_store.keys()
        )  # it has a client from now on: a jail may take longer to start than the store lingers
        self._until = until
        self._spares = 0
        until.callback(self.descriptor_store.shut_down)

    def spare(self, *, snapshots: bool = True) -> None:
        """Starts a jail for a later runtime."""
        ends = start_ends(POLICY if snapshots else replace(POLICY, snapshots="none"))
        self._spares += 1
        self.descriptor_store.put(f"spare/{self._spares}", ends.record(), ends.descriptors())
        ends.close()

    def victim(self, *, snapshots: bool = True, how: str = "fresh", dies: str = "") -> Victim:
        self.spare(snapshots=snapshots)
        victim = Victim(self._supervising, self.folder, how, dies)
        self._until.callback(lambda: victim.process.poll() is None and victim.kill())
        return victim

    def adopting(self) -> Victim:
        """Another process that takes the runtime over, for the test to kill."""
        return Victim(self._supervising, self.folder, "adopt")

    def adopt(
        self,
        hosts: HostHandler | None = None,
        keeping: RuntimeStorage = NO_STORAGE,
        entries: Entries | None = None,
    ) -> HostedRuntime:
        """keeping: where the former process has stored the runtime. entries: see `adopt`."""
        kept = StoredHandoverLog.found(NAME, POLICY, self.descriptor_store, SpareJails(self.descriptor_store))
        equip = partial(keeping.equip, room=boundless, seals=SEALS, lives=True)
        runtime = adopt(NAME, POLICY, hosts or NoHosts(), kept, keeping.record_of(NAME), equip, entries)
        self._until.callback(runtime.close)
        return runtime

    def worker(self) -> int:
        """The pid of the runtime's worker, until a copy of it has replaced it."""
        kept = self.descriptor_store.get(JAIL)
        assert kept is not None
        process = WorkerProcess(pid_of(kept.descriptors[0]))
        process.close()
        close_all(kept.descriptors)
        return process.pid

    def nudge(self) -> None:
        """Sends the running cell a signal directly: see `NUDGED`."""
        os.kill(self.worker(), signal.SIGUSR1)

    def end_worker(self) -> None:
        """Works between two cells too, where signals that a program can handle wait for the next one."""
        os.kill(self.worker(), signal.SIGKILL)

    def begin(self, keeping: RuntimeStorage) -> HostedRuntime:
        """A runtime of which only the stored data exists."""
        kept = StoredHandoverLog.fresh(NAME, POLICY, self.descriptor_store, SpareJails(self.descriptor_store))
        runtime = HostedRuntime(POLICY, NoHosts(), kept.start_jail, NAME, kept, keeping.record_of(NAME))
        self._until.callback(runtime.close)
        keeping.equip(runtime, boundless, SEALS)
        return runtime


@pytest.fixture(scope="session")
def supervising() -> Iterator[Prepared]:
    """Starts victims."""
    with closing(Prepared("tests.support.adoption.supervising")) as prepared:
        yield prepared


@pytest.fixture
def node(tmp_path: Path, supervising: Prepared) -> Iterator[Node]:
    with ExitStack() as until:
        yield Node(tmp_path / "keeper", until, supervising)


def join(runtime: HostedRuntime, key: str, heard: int = 0) -> Heard:
    """Joins a call again."""
    listener = Heard()
    runtime.execute("1 / 0", None, listener, RequestKey(text=key, heard=heard, missed=listener.missed))
    return listener


def value(runtime: HostedRuntime, code: str) -> str | None:
    listener = Heard()
    runtime.execute(code, None, listener)
    result = listener.result()
    assert result.success, result.error
    return result.value
