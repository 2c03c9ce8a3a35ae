"""Chooses where a namespace lives, where its checkpoints go, and what it begins with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from cenote.runtime.core.backend import NO_RETENTION, Backend, RetentionOptions
from cenote.runtime.inject.host_function_server import HostFunctionServer, LocalHostHandler
from cenote.runtime.inject.injectables import Injectable
from cenote.runtime.inject.injection import stays_here
from cenote.runtime.remote.address import Destination, destination
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import IncompleteRestoreError
from cenote_worker.checkpoints.fidelity import Fidelity, fidelity
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.process.metrics import THIS_PROCESS
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.checkpoints import Checkpoints
from cenote_worker.runtime.state.image_seals import own_seals
from cenote_worker.runtime.state.images import StoredImages

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
        missing = () if self.partial else expected.missing
        if missing and not expected.may_be_imaged:
            raise IncompleteRestoreError(name, base.number, missing)
        checkpoints = Checkpoints(
            backend,
            store,
            name,
            durable=self.durable,
            base=base,
            partial=self.partial,
            added=[item.name for item in items],
            missing=missing,
        )
        if missing:
            backend.start()  # only that shows whether the image has all
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
    stored = _store(store)
    base = stored.manifest(name, checkpoint)
    told = fidelity(base, [item.name for item in items if stays_here(item)])
    image, lacks = StoredImages(stored.folder(name), own_seals(name)).foretold(base)
    return replace(told, image=image, image_lacks=lacks)


def _store(url: StoreURL) -> CheckpointStore:
    """Raises UsageError for what is none."""
    return CheckpointStore(os.fspath(url) if isinstance(url, os.PathLike) else url)


BackendFor = Callable[[SandboxPolicy, HostFunctionServer], Backend]


def backend_at(
    address: str | None,
    token: str | None,
    history: str | Path | None = None,
    name: str | None = None,
    store: StoreURL | None = None,
    *,
    durable: bool = False,
) -> tuple[BackendFor, Storage | None]:
    """What makes namespaces at an address, or where the environment says, and what stores them where they are made.

    history: of an embedded one: where its steps are written to, under its name. store: see Storage; a platform has
    its own, and a durable runtime there is the one of that name.

    Raises UsageError for what does not go together, and what `destination` raises.
    """
    target = destination(address, token)
    if target is None:
        return partial(embedded, history=history, name=name or ""), storage(store, durable)
    if history is not None:
        raise UsageError("the history of a remote runtime is kept by its platform, not by its clients")
    if store is not None:
        raise UsageError("only embedded runtimes have a store of their own; leave out `store` on a platform")
    if not durable:
        return partial(remote, destination=target), None
    if not name:
        raise UsageError("a durable runtime of a platform has a name, which it is found by again")
    return named(target, name, attach=True, kept=RetentionOptions(durable=True)), None


def embedded(
    policy: SandboxPolicy, desk: HostFunctionServer, history: str | Path | None = None, name: str = ""
) -> Backend:
    """In a jail of this machine, supervised by this process."""
    if history is None:
        runtime = HostedRuntime(policy, LocalHostHandler(desk), counts=THIS_PROCESS)
    else:
        from cenote_worker.history.store_writer import open_history  # SQLAlchemy: most programs do without

        runtime = HostedRuntime(
            policy, LocalHostHandler(desk), history=open_history(history, name), counts=THIS_PROCESS
        )
    return runtime


def remote(policy: SandboxPolicy, desk: HostFunctionServer, destination: Destination) -> Backend:
    """On a platform, for as long as this client is there."""
    return _on_platform(policy, desk, destination, "", attach=False)


def named(
    destination: Destination, name: str, *, attach: bool, kept: RetentionOptions = NO_RETENTION
) -> BackendFor:
    """What makes the namespace of that name on a platform, or joins it; it outlives its clients."""
    return lambda policy, desk: _on_platform(policy, desk, destination, name, attach=attach, kept=kept)


def _on_platform(
    policy: SandboxPolicy,
    desk: HostFunctionServer,
    destination: Destination,
    name: str,
    *,
    attach: bool,
    kept: RetentionOptions = NO_RETENTION,
) -> Backend:
    # gRPC takes a while to load, and most programs do without. It is loaded quietly, before all else that needs it.
    from cenote.runtime.remote.background import background

    background()
    from cenote.runtime.remote.platform_client import client_of
    from cenote.runtime.remote.runtime import RemoteRuntime

    return RemoteRuntime(client_of(destination), policy, desk, name, attach=attach, kept=kept)
