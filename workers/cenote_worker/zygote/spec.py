"""What a client sends to a zygote: once at its start, and for each jail. Plain JSON between two trusted processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from cenote_security.policy import Isolation, Mount, SandboxPolicy
from cenote_security.walls.level import Home, JailAllowance, LevelName
from cenote_worker.process.worker_settings import WorkerSettings

MAX_MESSAGE = 64 * 2**10
"""Bytes of one message on a zygote's socket. Only its paths can be long."""

DEFAULT_ENTRY = "cenote_worker.jail.worker"

_UNTOLD: Final = ("env", "environment", "mounts", "network", "preload")
"""Options that a zygote gets in another form, or may not get."""


@dataclass(frozen=True, kw_only=True)
class ZygoteSpec:
    """The common settings of all jails of one zygote.

    isolation, preload, mounts: of the policy. search: `sys.path` of the jails. visible: host paths shown read-only.
    prefix: see Interpreter. held: a descriptor that stays open while the zygote lives, but not in its jails; -1 for
    none.
    entry: the module whose `main(frames_fd, settings)` is a worker. client: the pid whose death ends the zygote.
    lingers: its jails belong to other processes than the client, and end with those: when its client has gone, the
        zygote starts no more jails and stays until the last has ended.
    """

    isolation: Isolation
    preload: tuple[str, ...]
    mounts: tuple[Mount, ...]
    search: tuple[str, ...]
    visible: tuple[str, ...]
    entry: str
    client: int
    lingers: bool = False
    prefix: str = ""
    held: int = -1

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ZygoteSpec:
        fields = json.loads(text)
        for name in ("preload", "search", "visible"):
            fields[name] = tuple(fields[name])
        fields["mounts"] = tuple(Mount(**mount) for mount in fields["mounts"])
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class JailStartRequest:
    """A request for one jail. number: the client's, unique per zygote. policy, egress: see JailAllowance.

    has_environment: whether the policy's variables and the trusted PEM come along, as JSON in a memory file. They are
    not part of the request because the zygote reads that, and later jails, its forks, could find it in their memory.
    groups: the number of control group files that come along.
    """

    number: int
    policy: SandboxPolicy
    egress: bool
    has_environment: bool
    groups: int = 0

    @classmethod
    def of(
        cls, policy: SandboxPolicy, number: int, groups: int = 0, trusts: bool = False
    ) -> JailStartRequest:
        kept = {name: value for name, value in policy.changes().items() if name not in _UNTOLD}
        return cls(
            number=number,
            policy=SandboxPolicy.from_changes(kept),
            egress=policy.network != "none",
            has_environment=bool(policy.env) or trusts,
            groups=groups,
        )

    def allowance(self, seat: int, base_memory: int) -> JailAllowance:
        """seat: see JailAllowance. base_memory: bytes of a new fork, in addition to the policy's memory."""
        return JailAllowance(
            number=self.number,
            seat=seat,
            memory=base_memory + self.policy.memory_bytes,
            policy=self.policy,
            egress=self.egress,
        )

    def settings(self, home: Home, isolation: LevelName) -> WorkerSettings:
        return WorkerSettings(
            workdir=home.workdir, temporary=home.temporary, isolation=isolation, policy=self.policy
        )

    def to_json(self) -> str:
        return json.dumps({**vars(self), "policy": self.policy.changes()})

    @classmethod
    def from_json(cls, text: str | bytes) -> JailStartRequest:
        fields = json.loads(text)
        return cls(**fields | {"policy": SandboxPolicy.from_changes(fields["policy"])})


@dataclass(frozen=True, kw_only=True)
class StartFailure:
    """Why a jail was not started. step: the part of the work that failed; code: errno or 0."""

    step: str
    code: int
    detail: str
