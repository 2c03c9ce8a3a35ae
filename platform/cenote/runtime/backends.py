"""Chooses where a namespace lives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cenote.runtime.backend import Backend
from cenote.runtime.host_desk import HostDesk, LineDesk
from cenote.runtime.remote.address import Destination, destination
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.hosted.runtime import HostedRuntime

BackendFor = Callable[[SandboxPolicy, HostDesk], Backend]


def backend_at(
    address: str | None, token: str | None, history: str | Path | None = None, name: str | None = None
) -> BackendFor:
    """What makes namespaces at an address, or where the environment says. See `destination` for errors.

    history: of an embedded one: where its steps are written to, under its name. Raises UsageError for a remote one.
    """
    target = destination(address, token)
    if target is None:
        return partial(embedded, history=history, name=name or "")
    if history is not None:
        raise UsageError("the history of a remote runtime is kept by its platform, not by its clients")
    return partial(remote, destination=target)


def embedded(
    policy: SandboxPolicy, desk: HostDesk, history: str | Path | None = None, name: str = ""
) -> Backend:
    """In a jail of this machine, supervised by this process."""
    if history is None:
        return HostedRuntime(policy, LineDesk(desk))
    from cenote_worker.history.writing import open_history  # SQLAlchemy: most programs do without

    return HostedRuntime(policy, LineDesk(desk), history=open_history(history, name))


def remote(policy: SandboxPolicy, desk: HostDesk, destination: Destination) -> Backend:
    """On a platform, for as long as this client is there."""
    return _on_platform(policy, desk, destination, "", attach=False)


def named(destination: Destination, name: str, *, attach: bool) -> BackendFor:
    """What makes the namespace of that name on a platform, or joins it; it outlives its clients."""
    return lambda policy, desk: _on_platform(policy, desk, destination, name, attach=attach)


def _on_platform(
    policy: SandboxPolicy, desk: HostDesk, destination: Destination, name: str, *, attach: bool
) -> Backend:
    # gRPC takes a while to load, and most programs do without. It is loaded quietly, before all else that needs it.
    from cenote.runtime.remote.background import background

    background()
    from cenote.runtime.remote.platform_client import client_of
    from cenote.runtime.remote.runtime import RemoteRuntime

    return RemoteRuntime(client_of(destination), policy, desk, name, attach=attach)
