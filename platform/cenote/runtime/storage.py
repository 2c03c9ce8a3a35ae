"""Where a runtime's checkpoints go and what it begins with, as its user says it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cenote.runtime.backend import Backend
from cenote.runtime.injectables import Injectable
from cenote.runtime.injection import stays_here
from cenote_security.errors import UsageError
from cenote_worker.checkpoints.errors import IncompleteRestoreError
from cenote_worker.checkpoints.fidelity import Fidelity, fidelity
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.hosted.checkpoints import Checkpoints
from cenote_worker.hosted.runtime import HostedRuntime

StoreURL = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """begin: with nothing, with a checkpoint, or with one if there is any. checkpoint: which: a number, a label, None
    for the newest.

    durable: every change is stored before its caller hears of it. partial: a restore may leave things out.
    """

    url: StoreURL
    durable: bool = False
    begin: Literal["new", "stored", "either"] = "new"
    checkpoint: int | str | None = None
    partial: bool = False

    def open(self, name: str | None, backend: Backend, items: Iterable[Injectable]) -> Checkpoints:
        """The checkpoints of that name, now this runtime's. items: what the runtime is given again.

        Raises UsageError, CheckpointError; IncompleteRestoreError when a restore would leave something out.
        """
        if not name:
            raise UsageError("a runtime with a store has a name, which its checkpoints are found by")
        if not isinstance(backend, HostedRuntime):
            raise UsageError("only embedded runtimes are restored by their clients; leave out `address`")
        store = _store(self.url)
        if self.begin == "new" or (self.begin == "either" and not store.has(name)):
            return Checkpoints(backend, store, name, durable=self.durable)
        items = list(items)
        base = store.manifest(name, self.checkpoint)
        expected = fidelity(base, [item.name for item in items if stays_here(item)])
        if not expected.complete and not self.partial:
            raise IncompleteRestoreError(name, base.number, expected.missing)
        checkpoints = Checkpoints(
            backend,
            store,
            name,
            durable=self.durable,
            base=base,
            partial=self.partial,
            added=[item.name for item in items],
        )
        backend.recorder.goes_on_from(base.step)
        return checkpoints


def storage(store: StoreURL | None, durable: bool) -> Storage | None:
    """What a new runtime's arguments say. Raises UsageError."""
    if store is None:
        if durable:
            raise UsageError("a durable runtime has a store; give one with store=...")
        return None
    return Storage(url=store, durable=durable)


def foretold(
    store: StoreURL, name: str, checkpoint: int | str | None = None, items: Iterable[Injectable] = ()
) -> Fidelity:
    """What a restore would give back, without starting one.

    items: what the runtime will be given again. Raises UnknownEntryError, CheckpointError.
    """
    base = _store(store).manifest(name, checkpoint)
    return fidelity(base, [item.name for item in items if stays_here(item)])


def _store(url: StoreURL) -> CheckpointStore:
    """Raises UsageError for what is none."""
    return CheckpointStore(os.fspath(url) if isinstance(url, os.PathLike) else url)
