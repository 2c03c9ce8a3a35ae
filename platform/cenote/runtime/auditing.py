"""Runtimes of this process as the auditor of patches looks at them, and full runs of their histories beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import SystemRandom
from typing import Final

from cenote.harness.apply_auditor import Auditor
from cenote.harness.apply_ground import EffectNotRepeatedError
from cenote.harness.patch_errors import not_repeated
from cenote.harness.plan_contents import found_at_first
from cenote.runtime.file_requests import content_read, listed, listing, reading
from cenote.runtime.ground import RuntimeGround
from cenote.runtime.listeners import BlockingListener
from cenote.runtime.replies import value, variables
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.history.step import StepRecord
from cenote_worker.hosted.files import FileAsk
from cenote_worker.hosted.rehearsal import RecordedHosts, fresh_beside
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.written_files import write_all, written_by
from cenote_worker.supervisor.requests import Listener, Outcome
from cenote_worker.trace import key_of

_BYTECODE: Final = b"__pycache__"
"""What Python writes there has the times of its sources in it, and follows from them."""


def auditor_of(share: float) -> Auditor | None:
    """None for a share of 0. Raises UsageError for what is no share."""
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
        raise UsageError(f"audit_patches is a share from 0 to 1, not {share!r:.100}")
    return Auditor(share=share, chance=SystemRandom().random) if share else None


class ToldRuntime:
    """See Told. Nobody else uses it meanwhile."""

    def __init__(
        self, runtime: HostedRuntime, records: Sequence[StepRecord], classes: Mapping[str, type]
    ) -> None:
        """classes: that values are rebuilt of."""
        self._runtime = runtime
        self._classes = classes
        self.records = records

    def described(self) -> Mapping[str, str]:
        found = variables(self._call(self._runtime.describe))
        return {info.name: f"{info.type} {info.shape} {info.description}" for info in found}

    def value(self, name: str) -> object:
        outcome = self._call(lambda listener: self._runtime.fetch(name, listener, opaque=False))
        found: object = value(outcome, name, self._classes, (), trusted=False)
        return found

    def files(self) -> Mapping[str, bytes]:
        return dict(self._below(b""))

    def _below(self, folder: bytes) -> Iterator[tuple[str, bytes]]:
        ask = listing(folder)
        found = listed(self._ask(ask), ask)
        if not found.complete:
            raise UnavailableError(f"the folder {ask.shown!r} has too many entries to be compared")
        for entry in found.entries:
            path = folder + b"/" + entry.raw if folder else entry.raw
            if entry.kind == "folder" and entry.raw != _BYTECODE:
                yield from self._below(path)
            shown = path.decode("utf-8", "backslashreplace")
            yield shown, self._digest(path) if entry.kind == "file" else entry.kind.encode()

    def _digest(self, path: bytes) -> bytes:
        ask = reading(path, 0, None, self._runtime.policy)
        content = content_read(self._ask(ask), ask)
        try:
            return hashlib.sha256(content.whole()).digest()
        finally:
            content.close()

    def _ask(self, ask: FileAsk) -> Outcome:
        return self._call(lambda listener: self._runtime.file(ask, listener))

    def _call(self, queue: Callable[[Listener], None]) -> Outcome:
        listener = BlockingListener()
        queue(listener)
        return listener.wait(self._runtime.resume)


class AuditedRuntime(ToldRuntime):
    """See Audited. Its line to the head is what is run in full."""

    def __init__(
        self, runtime: HostedRuntime, classes: Mapping[str, type], cancelled: Callable[[], bool]
    ) -> None:
        """cancelled: is asked before each step of a full run."""
        tree = runtime.history.tree
        self._head = tree.head
        super().__init__(runtime, [step for step in tree.line(self._head) if step.stays], classes)
        self._cancelled = cancelled

    def obstacle(self) -> str:
        return next(self._obstacles(), "")

    def _obstacles(self) -> Iterator[str]:
        runtime = self._runtime
        if runtime.earlier is not None:
            yield "the history begins with a state that was restored, not with the start of a runtime"
        if why := runtime.begins_otherwise:
            yield f"the start of the history cannot be made again: {why}"
        if any(mount.writable for mount in runtime.policy.mounts):
            yield "steps may write to mounted folders, which are not written to twice"
        if runtime.network_log:
            yield "steps have reached for the network, which is not asked twice"
        for record in self.records:
            yield from _obstacles(record)

    @contextmanager
    def in_full(self) -> Iterator[ToldRuntime]:
        hosts = RecordedHosts(())
        fresh = fresh_beside(self._runtime, hosts)
        try:
            fresh.start()
            write_all(fresh, written_by(self._runtime.history))
            yield ToldRuntime(fresh, list(self._run(fresh, hosts)), self._classes)
            if self._runtime.history.tree.head != self._head:
                raise UnavailableError("others went on with the runtime meanwhile")
        finally:
            fresh.close()

    def _run(self, fresh: HostedRuntime, hosts: RecordedHosts) -> Iterator[StepRecord]:
        """Up to a call outside that no record answers."""
        ground = RuntimeGround(fresh.rerunning(), fresh.resume, None, atomic=False)
        self._check_start(ground)
        for record in self.records:
            if self._cancelled():
                raise UnavailableError("nobody waits for it any more")
            fresh.history.keep_file(self._runtime.history.files.get(record.content))
            try:
                done = ground.execute(record, record.code, tentative=True)
            except EffectNotRepeatedError:
                return
            if hosts.refused is not None:
                return
            if done.status == "lost":
                raise UnavailableError(f"its jail was lost in step {record.number}")
            yield done

    def _check_start(self, ground: RuntimeGround) -> None:
        """Raises UnavailableError where the first steps, in another runtime or process, have found other values."""
        found = found_at_first(self.records) if self._runtime.began_elsewhere else {}
        now = ground.versions(found)
        others = sorted(key_of(each) for each, version in found.items() if now.get(each, version) != version)
        if others:
            raise UnavailableError(f"the first steps have found another value of {', '.join(others)}")


def _obstacles(record: StepRecord) -> Iterator[str]:
    if not record.repeatable:
        yield not_repeated(record)
    if record.shed:
        yield f"what step {record.number} gave is not kept any more"
    if not (record.tells_calls and all(call.answered for call in record.host_calls)):
        yield f"not all is recorded of what step {record.number} called outside"
