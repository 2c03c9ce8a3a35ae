"""The checkpoints of one hosted runtime: making them, ending a jail that has one, filling the next from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cenote_security.errors import EntryExistsError
from cenote_worker.checkpoints import restoring
from cenote_worker.checkpoints.errors import IncompleteRestoreError, StoreFailedError
from cenote_worker.checkpoints.fidelity import fidelity
from cenote_worker.checkpoints.manifest import Manifest
from cenote_worker.checkpoints.restoring import Restoration
from cenote_worker.checkpoints.state import State, Unkept
from cenote_worker.checkpoints.store import CheckpointInfo, CheckpointStore
from cenote_worker.checkpoints.writer import CheckpointWriter, Draft
from cenote_worker.history.step import START
from cenote_worker.hosted.acknowledging import Acknowledger, Durable
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.state_transfer import collected, put
from cenote_worker.results import printable
from cenote_worker.supervisor.requests import Listener
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
        try:
            return collected(self._runtime, supervisor, draft)
        except OSError as error:
            place = self.store.folder(self.name).place
            raise StoreFailedError(place, error.strerror or str(error)) from error

    # -- being the runtime's Refill --

    @property
    def begins_with(self) -> str:
        if self._base is None:
            return ""
        number, step = self._base.number, self._base.state.message.step
        return f"the next cell starts from checkpoint {number}, the state after step {step}"

    @property
    def step(self) -> int:
        return self._base.state.message.step if self._base is not None else START

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
                    put(supervisor, piece, self.name, base.number)
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
