"""How a platform is to run. Values only, and their spelling for the process that carries them out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from cenote.gateway.bounds import PRELOADS
from cenote.gateway.state_folder import StateFolder
from cenote.runtime.remote.address import PORT
from cenote_security.errors import UsageError
from cenote_security.loopback import is_loopback

LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformOptions:
    """host, port: where clients connect; off the loopback with TLS only. Port 0 is any that is free.

    ray_address: of a cluster; None for one of this machine alone, made for the platform. without_ray: no cluster at
    all; the runtimes are the gateway's own and end with it. relay: clients reach their runtimes through
    this port, whatever else they could reach. tls: on all lines; those between gateway and machines have it in any
    case where they lead off the loopback. certificate, key: what the gateway shows to clients, instead of one by the
    platform's own authority.
    preloads: modules that tenants may have preloaded. store, hibernate_after: see States.
    model_endpoints: base URLs that models of tenants' teams and jobs may be at, besides those of their providers.
    team_environment: names of variables that the processes find which work on teams and jobs, such as
    OPENAI_API_KEY.
    audit_keep: seconds for which entries of the audit log are kept at least; 0 for ever.
    shared_memory: bytes of memory for the shared values of one machine; None for half of what it has. What is beyond
    goes to disk, in the folder of the machine's state.
    """

    state: StateFolder
    host: str = LOOPBACK
    port: int = PORT
    ray_address: str | None = None
    without_ray: bool = False
    relay: bool = False
    tls: bool = False
    certificate: Path | None = None
    key: Path | None = None
    preloads: tuple[str, ...] = PRELOADS
    model_endpoints: tuple[str, ...] = ()
    team_environment: tuple[str, ...] = ()
    store: str = ""
    hibernate_after: float = 0.0
    shared_memory: int | None = None
    audit_keep: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise UsageError(f"a port is from 0 to 65535, not {self.port}")
        if self.without_ray and self.ray_address is not None:
            raise UsageError("--ray-address and --without-ray do not go together")
        if (self.certificate is None) != (self.key is None):
            raise UsageError("a certificate and its key go together: give both, or neither")
        if self.certificate is not None and not self.tls:
            raise UsageError("a certificate is for TLS; add --tls")
        if not self.tls and not is_loopback(self.host):
            raise UsageError(
                f"{self.host} can be reached from other machines, where no token goes in the clear; add --tls"
            )

    @property
    def relayed(self) -> bool:
        """Whether nobody needs another port: runtimes of a machine that is the whole platform are on its loopback."""
        return self.relay or (self.ray_address is None and not is_loopback(self.host))

    @property
    def among_machines(self) -> bool:
        """Whether this machine is one of the cluster's, so that actors there have the platform's store."""
        return not self.without_ray and not (self.ray_address or "").startswith("ray://")

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> PlatformOptions:
        """What `to_json` wrote."""
        given: dict[str, Any] = json.loads(text)
        for name in ("certificate", "key"):
            given[name] = Path(given[name]) if given[name] else None
        for name in ("preloads", "model_endpoints", "team_environment"):
            given[name] = tuple(given[name])
        return cls(**given | {"state": StateFolder(path=Path(given["state"]["path"]))})
