"""A process that hosts one runtime, carries out commands and reports events, for tests to kill.

Commands and reports are JSON, one per line. Another process has started its jails and put them into the descriptor
store.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from cenote.runtime.replay.patcher import HOST_PATCHER, apply_patch
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_proto.v1.journal_pb2 import JournalEntry
from cenote_security.errors import CenoteError
from cenote_security.policy import SandboxPolicy
from cenote_worker.descriptor_store.client import DescriptorStoreClient, DescriptorStoreWatch
from cenote_worker.execution.results import ExecutionResult, StreamName
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.record.journal import JournalFile
from cenote_worker.runtime.handover.stored_log import StoredHandoverLog
from cenote_worker.runtime.handover.takeover import adopt
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.patch_jobs import BuildRequest, PatchedStep, PatchRequest
from cenote_worker.runtime.recorder import admit_all
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.branches import temporary_rollback
from cenote_worker.runtime.state.image_seals import ImageSeals
from cenote_worker.runtime.state.storage import NO_STORAGE, RuntimeStorage
from cenote_worker.supervisor import worker_failover
from cenote_worker.supervisor.channels.host_calls import HostCall, HostCallChannel
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.tenancy.audit_events import EventBuffer
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.tenancy.usage import RuntimeUsage
from cenote_worker.transport.content import Content

POLICY = SandboxPolicy(preload=(), output=200_000)
NAME = "adopted"
SEALS = ImageSeals("t", NAME, lambda: b"key")
JAIL = f"runtime/{NAME}/jail/1"
"""The key of its first jail."""

TOKEN = "a-token"
BOOKS = RuntimeUsage("acme", NAME, POLICY, EventBuffer("victim"), MachineQuotas(), lambda _tenant: 0)

IDLE = "TESTS_IDLE_SECONDS"
"""Environment variable: after how many seconds an idle worker is ended."""


class SpareJails:
    """Takes jails that another process has started and put into the descriptor store."""

    def __init__(self, descriptor_store: DescriptorStoreClient) -> None:
        self._descriptor_store = descriptor_store

    def __call__(self, _policy: SandboxPolicy) -> JailEnds:
        key = self._descriptor_store.keys("spare/")[0]
        kept = self._descriptor_store.get(key)
        assert kept is not None
        self._descriptor_store.drop(key)
        return JailEnds.arrived(kept.record, kept.descriptors)


class DyingFile(JournalFile):
    """A journal that kills its process at the entry described by `at`: before or after it is written."""

    at = ""

    def append(self, entry: JournalEntry) -> None:
        body = entry.WhichOneof("body")
        told = f"{body} {getattr(entry.began, 'jail', 0) or entry.settled.key}".strip()
        for when, write in (("before", super().append), ("behind", lambda _: None)):
            if self.at == f"{when} {told}":
                os.kill(os.getpid(), signal.SIGKILL)
            write(entry)


class Reports:
    """A Listener that reports what it receives."""

    _lock = threading.Lock()

    def __init__(self, key: str) -> None:
        self._key = key

    def say(self, **report: object) -> None:
        with self._lock:
            print(json.dumps({"key": self._key, **report}), flush=True)

    def output(self, _stream: StreamName, text: str) -> bool:
        self.say(output=text)
        return True

    def done(self, outcome: Outcome) -> None:
        value = outcome.value if isinstance(outcome, ExecutionResult) else type(outcome).__name__
        self.say(done=value)

    def progress(self, progress: runtime_pb2.ApplyProgress) -> None:
        self.say(before=progress.number, reason=progress.reason)


class Silent:
    """A HostHandler that reports the calls that it gets, and answers none."""

    def call(self, _line: HostCallChannel, call: HostCall) -> None:
        call.close()
        Reports("host").say(called=call.target)

    def cancel(self, _call_id: int) -> None:
        pass

    def release(self, _reference: int) -> None:
        pass

    def ended(self) -> None:
        pass


def replaced(runtime: HostedRuntime, number: int, code: str) -> PatchRequest:
    """The line with other code in one of its steps."""
    tree = runtime.history.tree
    steps = tuple(
        PatchedStep(origin=step.number, change="another", code=code)
        if step.number == number
        else PatchedStep(origin=step.number)
        for step in tree.line(tree.head)
    )
    return PatchRequest(head=tree.head, steps=steps)


def gift(name: str, value: object) -> Injection:
    pickled = pickle.dumps(({name: value}, {}))
    return Injection(values=Content.pack([pickled]), names=(name,), replaces=name)


def offer(name: str) -> Injection:
    """A function that stays with the client."""
    target = jail_pb2.HostTarget(name=name, signature="()")
    values = Content.pack([pickle.dumps(({}, {}))])
    return Injection(values=values, names=(name,), hosts=(target,), client="a client")


def stored(folder: Path) -> RuntimeStorage:
    """Storage of a durable runtime, with all its data in a folder."""
    return RuntimeStorage(store=str(folder), records=str(folder), durable=True)


def recorded(folder: Path) -> RuntimeStorage:
    """Storage of a runtime that records its steps only."""
    return RuntimeStorage(records=str(folder))


def boundless(_size: int) -> AbstractContextManager[None]:
    return nullcontext()


def stuck(_size: int) -> AbstractContextManager[None]:
    """Room that is never found: requests that wait for storage wait for ever."""
    Reports("").say(storing=True)
    threading.Event().wait()
    raise AssertionError("unreachable")


def fresh(descriptor_store: DescriptorStoreClient, dies: str) -> StoredHandoverLog:
    file = DyingFile.create()
    file.at = dies
    descriptor_store.put(f"runtime/{NAME}/journal", b"", [file.descriptor])
    return StoredHandoverLog(NAME, POLICY, descriptor_store, file, SpareJails(descriptor_store))


def main(folder: str, how: str, dies: str) -> None:
    """how: `fresh`; `adopt`; `recorded`: fresh, with a record; `stored`: fresh and durable; `stuck`: likewise, and
    never gets to store anything. dies: see DyingFile.
    """
    if IDLE in os.environ:
        worker_failover.IDLE_SECONDS = float(os.environ[IDLE])
    descriptor_store = DescriptorStoreClient(Path(folder))
    watch, store = DescriptorStoreWatch(Path(folder)), Path(folder) / "store"
    if how == "adopt":
        kept = StoredHandoverLog.found(NAME, POLICY, descriptor_store, SpareJails(descriptor_store))
        runtime = adopt(NAME, POLICY, Silent(), kept)
    else:
        store.mkdir(exist_ok=True)  # a platform makes it
        keeping = {"fresh": NO_STORAGE, "recorded": recorded(store)}.get(how, stored(store))
        kept = fresh(descriptor_store, dies)
        runtime = HostedRuntime(POLICY, Silent(), kept.start_jail, NAME, kept, keeping.record_of(NAME))
        keeping.equip(runtime, stuck if how == "stuck" else boundless, SEALS)
    watch.add(kept.refill)
    Reports("").say(hosting=True)
    for line in sys.stdin:
        command = json.loads(line)
        listener = Reports(command["key"])
        try:
            obey(runtime, command, listener)
        except CenoteError as error:
            listener.say(refused=type(error).__name__)


def obey(runtime: HostedRuntime, command: dict[str, Any], listener: Reports) -> None:
    key = RequestKey(text=command["key"])
    match command["do"]:
        case "execute":
            author = command.get("author")
            holder = runtime.attach(author, private=False) if author else runtime
            on_error, code = command.get("on_error", "keep"), command["code"]
            holder.execute(
                code,
                command.get("timeout"),
                listener,
                key,
                cause="a model",
                entry=BOOKS.cell(code, TOKEN),
                on_error=on_error,
            )
        case "snapshot":
            runtime.snapshot(command["label"], listener, key)
        case "rollback":
            runtime.rollback(command["to"], listener, key)
        case "inject":
            injection = gift(command["name"], [command["value"], bytes(command["size"])])
            runtime.inject(injection, listener, replace=True, key=key)
        case "delete":
            runtime.delete(command["name"], listener, key)
        case "offer":
            runtime.inject(offer(command["name"]), listener, replace=True, key=key)
        case "patch":
            request = replaced(runtime, command["number"], command["code"])
            work = partial(apply_patch, runtime, request)
            runtime.patches.apply(work, listener, key, listener.progress, admit_all)
        case "declare":
            HOST_PATCHER.declare(runtime, [ArtifactDeclared(**each) for each in command["units"]])
            listener.say(done="declared")
        case "build":
            work = partial(HOST_PATCHER.build, runtime, BuildRequest(test_seconds=60))
            runtime.patches.apply(work, listener, key, listener.progress, admit_all)
        case "visit":
            with temporary_rollback(runtime, command["to"]):
                listener.say(visiting=True)
                sys.stdin.read()
        case "status":
            runtime.status(lambda status: listener.say(done=status and status.step))
        case "interrupt":
            runtime.interrupt()
