"""Chooses where a namespace lives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cenote.runtime.backend import Backend
from cenote.runtime.host_desk import HostDesk, LineDesk
from cenote.runtime.remote.address import Destination, destination
from cenote.runtime.remote.kept import NOT_KEPT, Kept
from cenote.runtime.storage import Storage, StoreURL, storage
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.counts import THIS_PROCESS
from cenote_worker.hosted.runtime import HostedRuntime

BackendFor = Callable[[SandboxPolicy, HostDesk], Backend]


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
    return named(target, name, attach=True, kept=Kept(durable=True)), None


def embedded(
    policy: SandboxPolicy, desk: HostDesk, history: str | Path | None = None, name: str = ""
) -> Backend:
    """In a jail of this machine, supervised by this process."""
    if history is None:
        runtime = HostedRuntime(policy, LineDesk(desk), counts=THIS_PROCESS)
    else:
        from cenote_worker.history.writing import open_history  # SQLAlchemy: most programs do without

        runtime = HostedRuntime(
            policy, LineDesk(desk), history=open_history(history, name), counts=THIS_PROCESS
        )
    return runtime


def remote(policy: SandboxPolicy, desk: HostDesk, destination: Destination) -> Backend:
    """On a platform, for as long as this client is there."""
    return _on_platform(policy, desk, destination, "", attach=False)


def named(destination: Destination, name: str, *, attach: bool, kept: Kept = NOT_KEPT) -> BackendFor:
    """What makes the namespace of that name on a platform, or joins it; it outlives its clients."""
    return lambda policy, desk: _on_platform(policy, desk, destination, name, attach=attach, kept=kept)


def _on_platform(
    policy: SandboxPolicy,
    desk: HostDesk,
    destination: Destination,
    name: str,
    *,
    attach: bool,
    kept: Kept = NOT_KEPT,
) -> Backend:
    # gRPC takes a while to load, and most programs do without. It is loaded quietly, before all else that needs it.
    from cenote.runtime.remote.background import background

    background()
    from cenote.runtime.remote.platform_client import client_of
    from cenote.runtime.remote.runtime import RemoteRuntime

    return RemoteRuntime(client_of(destination), policy, desk, name, attach=attach, kept=kept)
