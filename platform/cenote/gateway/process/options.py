"""How a platform is to run. Values only, and their serialised form for the process that runs it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Final, Self

from cenote.doors.otlp import check_collector
from cenote.gateway.process.daemon_lock import Running
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.values.bounds import PRELOADS
from cenote.runtime.remote.address import HTTP_PORT, LONGEST_WAIT, PORT
from cenote_security.errors import UsageError
from cenote_security.loopback import host_of, is_loopback, port_of
from cenote_security.options import Options, Size, option, parse_size
from cenote_worker.checkpoints.retention import Retention
from cenote_worker.node.environment_jail import BuildSettings

LOOPBACK: Final = "127.0.0.1"

_ADDRESS: Final = re.compile(r"(?:[^\s:]+|\[[^\s\]]+\]):(\d{1,5})")


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and int(found[1]) <= 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformOptions(Options):
    """What `cenote up` is told. state: the platform's folder on this machine."""

    state: StateFolder
    host: str = option(
        LOOPBACK, flag="host", help="where clients connect; off the loopback with TLS only", metavar="HOST"
    )
    port: int = option(
        PORT,
        flag="port",
        help="where clients connect; 0 for any that is free",
        at_least=0,
        at_most=65535,
        metavar="PORT",
    )
    ray_address: str | None = option(
        None,
        flag="ray-address",
        help="of a Ray cluster to run on",
        none="one of this machine alone, made for the platform",
        metavar="ADDRESS",
    )
    without_ray: bool = option(
        False,
        flag="without-ray",
        help="no cluster at all: one process; the runtimes are the gateway's own and end with it",
    )
    relay: bool = option(
        False,
        flag="relay",
        help="let clients reach everything through this one port, whatever else they could reach",
    )
    tls: bool = option(
        False,
        flag="tls",
        help="TLS on all lines; those to machines have it in any case where they lead off the loopback",
    )
    certificate: Path | None = option(
        None,
        flag="tls-cert",
        help="a certificate that the gateway shows to clients",
        none="one by the platform's own authority",
        metavar="FILE",
    )
    key: Path | None = option(
        None,
        flag="tls-key",
        help="the certificate's key, without a password, mode 0600",
        metavar="FILE",
    )
    preloads: tuple[str, ...] = option(
        PRELOADS,
        flag="preload",
        help="modules that runtimes may have imported beforehand, besides numpy and pandas",
        metavar="MODULE",
    )
    model_endpoints: tuple[str, ...] = option(
        (),
        flag="model-endpoint",
        help="base URLs that models of tenants' teams and jobs may be at, besides those of their providers",
        metavar="URL",
    )
    team_environment: tuple[str, ...] = option(
        (),
        flag="team-env",
        help="names of variables, such as OPENAI_API_KEY, that the processes find which work on teams and jobs",
        metavar="NAME",
    )
    store: str = option(
        "",
        flag="store",
        help="where states of durable runtimes go: a folder, which all machines have, or any URL that fsspec knows; "
        "by default a folder of this machine",
        metavar="URL",
    )
    hibernate_after: float = option(
        0.0,
        flag="hibernate-after",
        help="have runtimes sleep in the store that nothing calls for so long, unless they say otherwise",
        unit="seconds",
        at_least=0,
        none="never",
    )
    shared_memory: Size | None = option(
        None,
        flag="shared-memory",
        help="memory of one machine for shared values; what is beyond goes to disk, in the folder of its state",
        unit="bytes",
        none="half of what it has; 4 GiB without Ray",
    )
    audit_keep: float = option(
        0.0,
        flag="audit-days",
        flag_scale=86_400,
        metavar="DAYS",
        help="how long entries of the audit log are kept at least",
        unit="seconds",
        at_least=0,
        none="ever",
    )

    http: str = option(
        "",
        flag="http",
        help="where HTTP clients connect, off the loopback with TLS only; by default port 8480 of the same address, "
        "or any that is free with --port 0",
        metavar="HOST:PORT",
    )
    no_http: bool = option(False, flag="no-http", help="serve gRPC alone")
    environments: tuple[str, ...] = option(
        (),
        flag="environment",
        help="names of environments of this machine that runtimes may have; see `cenote env build`",
        metavar="NAME",
    )
    otlp: str = option(
        "",
        flag="otlp",
        help="send traces to the collector at this URL, such as http://localhost:4318, by OTLP over HTTP",
        metavar="URL",
    )
    metrics_tenants: bool = option(
        False,
        flag="metrics-tenants",
        help="count cells and their processor time by tenant, too, with the tenants' names as labels in /metrics",
    )

    log_json: bool = option(
        False, flag="log-json", help="write the log as JSON, an object on a line for each event"
    )
    keep_runtimes: bool = option(
        False,
        flag="keep-runtimes",
        help="on SIGTERM, leave the runtimes to the cluster of --ray-address, for the next platform with the same "
        "state and options; `cenote down` ends them",
    )
    wait_for_room: float = option(
        0.0,
        flag="wait-for-room",
        help="on the cluster of --ray-address, machines take as many runtimes as their custom resource `cenote` "
        "says, and further ones wait for so long while Ray's autoscaler is asked for machines",
        unit="seconds",
        at_least=0,
        at_most=LONGEST_WAIT,
        none="machines take any number",
    )
    release_after: float = option(
        0.0,
        flag="release-idle",
        help="give machines back to the cluster that nothing has used for so long, for Ray's autoscaler to remove",
        unit="seconds",
        at_least=0,
        none="never",
    )
    environment_index: tuple[str, ...] = option(
        (),
        flag="environment-index",
        help="package indexes that environments of tenants are built from, such as https://pypi.org/simple; with "
        "none, and no --environment-wheels, tenants have none built",
        metavar="URL",
    )
    environment_host: tuple[str, ...] = option(
        (),
        flag="environment-host",
        help="further names that files of these indexes lie at, such as files.example.com",
        metavar="NAME",
    )
    environment_wheels: tuple[str, ...] = option(
        (),
        flag="environment-wheels",
        help="folders with wheels, on each machine, that environments of tenants are built from",
        metavar="FOLDER",
    )
    environment_disk: Size = option(
        "4GiB",
        flag="environment-disk",
        help="what an environment of a tenant may take while it is built, in memory, with what is fetched for it",
        unit="bytes",
    )
    environment_seconds: float = option(
        900.0,
        flag="environment-seconds",
        help="how long building an environment of a tenant may take",
        unit="seconds",
        above=0,
    )

    def __setstate__(self, state: list[object]) -> None:
        """A pickle has only values, in order; one that was written before a field was added lacks the last ones."""
        known = fields(self)
        for kind, value in zip(known, [*state, *(kind.default for kind in known[len(state) :])], strict=True):
            object.__setattr__(self, kind.name, value)
        self.checked().raise_all()  # it also makes numbers of sizes, as of those in `kind.default`

    def __post_init__(self) -> None:
        wrong = self.checked()
        if self.without_ray and self.ray_address is not None:
            wrong.note(UsageError("--ray-address and --without-ray do not go together"))
        if self.keep_runtimes and self.ray_address is None:
            wrong.note(
                UsageError("--keep-runtimes is for a cluster that outlives the platform; add --ray-address")
            )
        if self.wait_for_room and self.ray_address is None:
            wrong.note(
                UsageError("--wait-for-room is for a cluster to which machines come; add --ray-address")
            )
        if self.release_after and not self.wait_for_room:
            wrong.note(
                UsageError("--release-idle gives back machines that --wait-for-room asks for again; add that")
            )
        if (self.certificate is None) != (self.key is None):
            wrong.note(UsageError("a certificate and its key go together: give both, or neither"))
        if self.certificate is not None and not self.tls:
            wrong.note(UsageError("a certificate is for TLS; add --tls"))
        if self.no_http and self.http:
            wrong.note(UsageError("--http and --no-http do not go together"))
        if isinstance(self.otlp, str) and self.otlp:
            with wrong.noting():
                check_collector(self.otlp)
        if isinstance(self.http, str) and self.http and not _is_address(self.http):
            wrong.note(
                UsageError(f"http is HOST:PORT, such as {LOOPBACK}:{HTTP_PORT}, not {self.http!r:.100}")
            )
        if isinstance(self.environment_index, tuple) and isinstance(self.environment_host, tuple):
            with wrong.noting():
                self.builds.check()
        for host in {
            self.host,
            host_of(self.http) if isinstance(self.http, str) and self.http else self.host,
        }:
            if not self.tls and isinstance(host, str) and not is_loopback(host):
                wrong.note(
                    UsageError(
                        f"{host} can be reached from other machines, where no token goes in the clear; add --tls"
                    )
                )
        wrong.raise_all()

    def log_set_up(self, level: int) -> Callable[[], None]:
        """What sets up the log of a process of the platform. It can be sent to other machines."""
        from cenote.gateway.process.logs import set_up

        return partial(set_up, level, as_json=self.log_json)

    @property
    def http_address(self) -> tuple[str, int]:
        """Where HTTP is served, if at all; port 0 for any free one."""
        if not self.http:
            return self.host, HTTP_PORT if self.port else 0
        return host_of(self.http), port_of(self.http)

    def at_ports_of(self, running: Running) -> Self:
        """The same platform, with the ports that this one was given. Raises ValueError."""
        host, _ = self.http_address
        http = f"{host}:{port_of(running.http)}" if running.http else self.http
        return replace(self, port=port_of(running.address), http=http)

    @property
    def relayed(self) -> bool:
        """Whether clients use only the gateway's port: runtimes of a one-machine platform are on its loopback."""
        return self.relay or (self.ray_address is None and not is_loopback(self.host))

    @property
    def among_machines(self) -> bool:
        """Whether this machine belongs to the cluster, so that actors on it have the platform's store."""
        return not self.without_ray and not (self.ray_address or "").startswith("ray://")

    @property
    def shared_memory_bytes(self) -> int | None:
        return None if self.shared_memory is None else parse_size(self.shared_memory)

    @property
    def builds(self) -> BuildSettings:
        """How environments of tenants are built."""
        return BuildSettings(
            indexes=self.environment_index,
            hosts=self.environment_host,
            wheels=tuple(str(Path(folder).absolute()) for folder in self.environment_wheels),
            disk=parse_size(self.environment_disk),
            seconds=self.environment_seconds,
        )

    @property
    def retention(self) -> Retention:
        """The retention of runtimes that specify none."""
        return Retention(hibernate_after=self.hibernate_after)
