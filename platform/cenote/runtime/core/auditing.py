"""Runtimes as the auditor of patches looks at them, here or elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from random import SystemRandom
from typing import Final

from cenote.harness.applying.auditor import Auditor
from cenote.harness.patching.errors import not_repeated
from cenote.runtime.core.backend import Backend
from cenote.runtime.core.file_requests import content_read, listed, listing, reading
from cenote.runtime.core.listeners import BlockingListener
from cenote.runtime.core.replies import value, variables
from cenote.runtime.replay.fresh_runs import FullRunClient, InspectedRuntime, line_of
from cenote_security.errors import UnavailableError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.history.step import StepRecord
from cenote_worker.runtime.jail_requests import WorkdirRequest
from cenote_worker.supervisor.requests import Listener, Outcome

_BYTECODE: Final = b"__pycache__"
"""What Python writes there has the times of its sources in it, and follows from them."""


def auditor_of(share: float) -> Auditor | None:
    """None for a share of 0. Raises UsageError for what is no share."""
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
        raise UsageError(f"audit_patches is a share from 0 to 1, not {share!r:.100}")
    return Auditor(share=share, chance=SystemRandom().random) if share else None


class ToldRuntime:
    """See InspectedState. It has no other user meanwhile."""

    def __init__(
        self,
        runtime: InspectedRuntime,
        records: Sequence[StepRecord],
        policy: SandboxPolicy,
        classes: Mapping[str, type],
    ) -> None:
        """policy: of the runtime. classes: that values are rebuilt of."""
        self._runtime = runtime
        self._policy = policy
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
        ask = reading(path, 0, None, self._policy)
        content = content_read(self._ask(ask), ask)
        try:
            return hashlib.sha256(content.whole()).digest()
        finally:
            content.close()

    def _ask(self, ask: WorkdirRequest) -> Outcome:
        return self._call(lambda listener: self._runtime.file(ask, listener))

    def _call(self, queue: Callable[[Listener], None]) -> Outcome:
        listener = BlockingListener()
        queue(listener)
        return listener.wait(self._runtime.resume)


class AuditedRuntime(ToldRuntime):
    """See AuditSubject. Its line to the head is what is run in full."""

    def __init__(
        self,
        runtime: Backend,
        line: FullRunClient,
        policy: SandboxPolicy,
        classes: Mapping[str, type],
        cancelled: Callable[[], bool],
    ) -> None:
        """line: to where it is. cancelled: is asked before each step of a full run."""
        tree = runtime.read_history().tree
        self._head = tree.head
        super().__init__(runtime, line_of(tree.line(self._head)), policy, classes)
        self._read_history = runtime.read_history
        self._line = line
        self._cancelled = cancelled

    def obstacle(self) -> str:
        return self._line.not_in_full() or next(chain.from_iterable(map(_obstacles, self.records)), "")

    @contextmanager
    def in_full(self) -> Iterator[ToldRuntime]:
        with self._line.in_full(self._head, self._cancelled) as (fresh, records):
            yield ToldRuntime(fresh, records, self._policy, self._classes)
            if self._read_history().tree.head != self._head:
                raise UnavailableError("others went on with the runtime meanwhile")


def _obstacles(record: StepRecord) -> Iterator[str]:
    if not record.repeatable:
        yield not_repeated(record)
    if record.shed:
        yield f"what step {record.number} gave is not kept any more"
    if not (record.tells_calls and all(call.answered for call in record.host_calls)):
        yield f"not all is recorded of what step {record.number} called outside"
