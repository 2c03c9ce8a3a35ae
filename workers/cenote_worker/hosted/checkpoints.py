"""The checkpoints of one hosted runtime: making them, ending a jail that has one, filling the next from it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import EntryExistsError, UnavailableError
from cenote_worker.checkpoints import restoring
from cenote_worker.checkpoints.collector import Collector
from cenote_worker.checkpoints.errors import CheckpointRefusedError, IncompleteRestoreError, StoreFailedError
from cenote_worker.checkpoints.fidelity import fidelity
from cenote_worker.checkpoints.manifest import Manifest
from cenote_worker.checkpoints.restoring import Piece, Restoration
from cenote_worker.checkpoints.state import State, Unkept
from cenote_worker.checkpoints.store import CheckpointInfo, CheckpointStore
from cenote_worker.checkpoints.writer import CheckpointWriter, Draft
from cenote_worker.content import Content
from cenote_worker.hosted.acknowledging import Acknowledger, Durable
from cenote_worker.hosted.asks import FETCH_TIMEOUT
from cenote_worker.hosted.listeners import Delivery
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.results import printable
from cenote_worker.supervisor.edge import RefusedReply
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import JailRequest, Listener, Outcome
from cenote_worker.supervisor.supervisor import Supervisor

KEEP: Final = 8
"""Checkpoints without a label that a durable runtime keeps; older ones are swept."""

_SWEEP_EVERY = 16


class Checkpoints:
    """One runtime's, under a name in a store. It is the runtime's Refill. Safe to use from several threads.

    durable: every change is stored before whoever made it hears of it.
    Raises StoreBusyError when the name has a writer, EntryExistsError when it has checkpoints and none is restored.
    """

    def __init__(
        self,
        runtime: HostedRuntime,
        url: str | Path,
        name: str,
        *,
        durable: bool = False,
        base: Manifest | None = None,
        partial: bool = False,
        added: Iterable[str] = (),
    ) -> None:
        """base: the checkpoint that the runtime begins with. partial: what cannot be read of it may be left out.

        added: names of injected things that stay if the checkpoint does not have them.
        """
        self.store = CheckpointStore(url)
        self.name = name
        self.durable = durable
        self._runtime = runtime
        self._pid = os.getpid()
        self._making = threading.Lock()
        self._acknowledger = Acknowledger(self._secure)
        self._unstored = False
        """Set while somebody was told that what a call did is not stored."""
        self._base = base
        self._partial = partial
        self._added = tuple(added)
        self._unkept: frozenset[Unkept] = frozenset()
        self._ready: Restoration | None = None
        self._writer = CheckpointWriter(self.store, name, base)
        try:
            if base is None and self.store.folder(name).numbers():
                raise EntryExistsError("stored runtime", name)
            if base is not None:
                self._ready = self._read(base)
                runtime.count_on(max(base.state.message.step, runtime.step), None)
                self._unkept = frozenset(base.state.unkept)
        except BaseException:
            self._writer.close()
            raise
        runtime.refill = self

    # -- making --

    def make(self, label: str = "") -> CheckpointInfo:
        """Stores the state as it is when the cells that were sent before are over. The next one does not wait for it.

        Raises CheckpointError, and what `HostedRuntime.start` raises.
        """
        with self._making:
            return self._writer.describe(self._make(self._runtime.started(), label))

    def _secure(self, supervisor: Supervisor) -> tuple[str, ...]:
        """Stores the state of that jail, and of no other: one that was filled since does not have what it did.

        Gives a line for each thing that cannot be stored and could, or was not there, until now.
        """
        with self._making:
            before, self._unstored = self._unkept, True
            manifest = self._make(supervisor, "")
            self._unstored = False
            if manifest.number % _SWEEP_EVERY == 0:
                self._writer.sweep(KEEP)
            return tuple(
                f"`{printable(thing.name)}` is not durable: {printable(thing.reason)}"
                for thing in sorted(self._unkept - before, key=lambda thing: thing.name)
            )

    def hibernate(self, *, partial: bool) -> CheckpointInfo:
        """Stores the state and ends the jail; the next call fills another with it.

        Raises IncompleteRestoreError, and then the jail goes on, when something would be missing and not `partial`.
        """
        with self._making:
            manifest = self._make(self._runtime.started(), "")
            missing = fidelity(manifest, manifest.state.message.hosts).missing
            if missing and not partial:
                raise IncompleteRestoreError(self.name, manifest.number, missing)
            self._runtime.sleep()
            return self._writer.describe(manifest)

    def _make(self, supervisor: Supervisor, label: str) -> Manifest:
        draft = self._writer.begin()
        try:
            state = self._collected(draft, supervisor)
            manifest = self._writer.publish(draft, state, label)
        finally:
            draft.discard()
        self._forget_ready()
        self._base, self._added = manifest, ()
        self._unkept = frozenset(state.unkept)
        return manifest

    def _collected(self, draft: Draft, supervisor: Supervisor) -> State:
        known = Content.pack([b"".join(draft.places)])
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        answer = _Answer()
        self._runtime.make_checkpoint(known, theirs, answer, supervisor)
        limit = 2 * self._runtime.policy.memory_bytes + self._runtime.policy.disk_bytes
        try:
            state = Collector(ours, draft, limit, supervisor.new_assembly(), answer.given_up).collect()
        except OSError as error:
            place = self.store.folder(self.name).place
            raise StoreFailedError(place, error.strerror or str(error)) from error
        outcome = answer.outcomes.get()
        if isinstance(outcome, Exception):
            raise outcome
        return state

    # -- being the runtime's Refill --

    @property
    def begins_with(self) -> str:
        if self._base is None:
            return ""
        number, step = self._base.number, self._base.state.message.step
        return f"the next cell starts from checkpoint {number}, the state after step {step}"

    @property
    def exact(self) -> bool:
        return self.durable and not self._unstored

    def acknowledging(self, listener: Listener, supervisor: Supervisor) -> Listener:
        return Durable(listener, self._acknowledger, supervisor) if self.durable else listener

    def fill(self, supervisor: Supervisor) -> None:
        base = self._base
        if base is None:
            return
        ready = self._ready or self._read(base)
        self._ready = None
        try:
            for piece in ready.pieces:
                try:
                    _put(supervisor, piece, self.name, base.number)
                except IncompleteRestoreError:
                    if not self._partial:
                        raise
        finally:
            ready.close()

    def forget(self) -> None:
        self._forget_ready()
        self._base = None

    def close(self) -> None:
        if self._pid == os.getpid():
            self._acknowledger.close()
            with self._making:
                self._forget_ready()
                self._writer.close()

    def _read(self, base: Manifest) -> Restoration:
        return restoring.read(self.store, self.name, base, partial=self._partial, added=self._added)

    def _forget_ready(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.close()


class _Answer(Delivery):
    """What the jail answered to the request for a copy, and whether the copy still has time."""

    def __init__(self) -> None:
        super().__init__()
        self._deadline: float | None = None
        self._failure = ""

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, RefusedReply):
            self._failure = printable(outcome.message)
            outcome = CheckpointRefusedError(self._failure)
        elif isinstance(outcome, Exception):
            self._failure = str(outcome)
        else:
            self._deadline = time.monotonic() + FETCH_TIMEOUT
        super().done(outcome)

    def given_up(self) -> str:
        """Why nothing is waited for any more; empty while something is."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            return f"the copy of its state took longer than {FETCH_TIMEOUT:g} s"
        return self._failure


def _put(supervisor: Supervisor, piece: Piece, name: str, number: int) -> None:
    """Gives a piece to the jail and waits until that has it. Raises CheckpointError, UnavailableError."""
    message, descriptors = jail_pb2.Request(), list[int]()
    message.restore.kind = piece.kind
    piece.content.to_wire(message.restore.content, descriptors)
    delivery = Delivery()
    supervisor.submit(JailRequest(Ask.RESTORE, message, delivery, descriptors, timeout=FETCH_TIMEOUT))
    outcome = delivery.outcomes.get()
    if isinstance(outcome, RefusedReply):
        missing = (f"{', '.join(piece.names[:20])}: {printable(outcome.message)}",)
        raise IncompleteRestoreError(name, number, missing)
    if isinstance(outcome, Exception):
        raise UnavailableError(f"the runtime's jail ended while it was filled: {outcome}") from outcome
