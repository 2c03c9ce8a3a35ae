"""What a jail may do: isolation, limits, environment. Values only; nothing here touches the machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from cenote_security.errors import UsageError
from cenote_security.network import Allow
from cenote_security.problems import Problems
from cenote_security.size import Size, parse_size

Isolation = Literal["auto", "strict", "landlock", "gvisor", "none"]
ISOLATIONS: Final = get_args(Isolation)
Limits = Literal["auto", "cgroup", "watchdog"]

_CALL_SECONDS: Final = 600.0
"""Enough for any value that fits a jail. A call without any limit would wait for ever for a value that never ends."""

MAX_PROCESSES = 2**22
"""`PID_MAX_LIMIT` of Linux."""

_MAX_BYTES = 2**62
"""What the kernel takes for a limit, with room for what is added to it."""


def check_seconds(seconds: object, what: str) -> None:
    """Raises UsageError unless `seconds` is a positive finite number, or None. what: its name for the error."""
    if seconds is None:
        return
    if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise UsageError(f"{what} is a positive number of seconds, or None for no limit, not {seconds!r}")


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A host directory or file that the jail sees, read-only unless `writable`.

    source: absolute path on the host. target: absolute path in the jail, the same as source by default.
    """

    source: str
    target: str = ""
    writable: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", self.target or self.source)
        for path in (self.source, self.target):
            if (
                not isinstance(path, str)
                or not path.startswith("/")
                or ".." in path.split("/")
                or "\0" in path
            ):
                raise UsageError(f"a mount needs absolute paths without '..': {path!r}")


@dataclass(frozen=True, kw_only=True)
class SandboxPolicy:
    """What the jail of a runtime may do and use. Frozen; share one between as many runtimes as you like.

    isolation: `strict` (namespaces, private root, Landlock, seccomp), `landlock` (no namespaces: Landlock,
        seccomp), `gvisor` (the namespaces of `strict`, and in them a kernel of the jail's own, by gVisor's `runsc`;
        slower, and nothing is preloaded), `none` (trusted code only), `auto` (`strict` or `landlock`).
    memory: bytes of memory of the whole jail, beyond what `preload` has filled; files in memory count.
    cpus: CPU time per time, of the whole jail, where control groups can hold it; and everywhere how many CPUs library
        thread pools inside may assume: `os.cpu_count()` is honest about it.
    processes: processes and threads at once.
    disk: bytes of the private working directory and `/tmp` together.
    noexec: no file that the jail can write to runs as a program; at `strict` none can be mapped as code either.
    output: bytes of stdout and stderr that are kept per cell (head and tail; the middle is dropped).
    cell_timeout: seconds a cell may run when `execute` names no timeout; None is no limit.
    call_timeout: seconds that each other call may take, once it has its turn: those for variables and files, and the
        parts of a fork. All of them run code of the jail, such as a value's `__reduce__`. None: as for a cell, and
        600 where cells have no limit.
    runtime_timeout: seconds that a runtime may live, from its first start on; None is no limit.
    limits: who holds the limits of the jail as a whole: `cgroup`, the kernel, exactly; `watchdog`, from outside, with
        some delay; `auto`, the first if the machine lets us, else the second.
    network: `"none"`, or `Allow([...])`: names that may be reached, through a proxy outside the jail; takes `strict`.
    env: environment variables of the jail. They are not secrets: model-written code can read them.
    mounts: host paths that the jail may see.
    snapshots: `auto`: the state before each cell is kept in memory, so that a cell that takes its process down does
        not take the namespace with it, and `rollback` can go back; copies count as memory, and up to a quarter of
        `processes`. `none`: nothing is kept.
    preload: modules imported once, before jails are forked, so that importing them in a cell is free.
    tracking: each result says what the cell read and wrote (`ExecutionResult.trace`), for a millisecond or two.
    """

    isolation: Isolation = "auto"
    memory: Size = "2GiB"
    cpus: float = 1.0
    processes: int = 128
    disk: Size = "1GiB"
    noexec: bool = False
    output: Size = "10MiB"
    cell_timeout: float | None = None
    call_timeout: float | None = None
    runtime_timeout: float | None = None
    limits: Limits = "auto"
    network: Literal["none"] | Allow = "none"
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    mounts: Sequence[Mount] = ()
    snapshots: Literal["auto", "none"] = "auto"
    preload: Sequence[str] = ("numpy", "pandas")
    tracking: bool = True

    def __post_init__(self) -> None:
        wrong = Problems()
        for name in ("memory", "disk", "output"):
            with wrong.noting():
                object.__setattr__(self, name, parse_size(getattr(self, name)))
        if not wrong:
            self._check_sizes(wrong)
        self._check_limits(wrong)
        self._check_surroundings(wrong)
        wrong.raise_all()
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))
        object.__setattr__(self, "mounts", tuple(self.mounts))
        object.__setattr__(self, "preload", tuple(self.preload))

    def __getstate__(self) -> dict[str, object]:
        """What pickle and copy take: of `env` a dictionary, since a read-only view of one can be neither."""
        return {**self.__dict__, "env": dict(self.env)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, env=MappingProxyType(state["env"]))

    def _check_sizes(self, wrong: Problems) -> None:
        if self.memory_bytes < 64 * 2**20:
            wrong.note(UsageError("a jail needs at least 64 MiB of memory to run Python"))
        if self.disk_bytes < 2**20:  # to the kernel, a tmpfs of size 0 has no limit
            wrong.note(UsageError("a jail needs at least 1 MiB of disk"))
        if max(self.memory_bytes, self.disk_bytes, self.output_bytes) > _MAX_BYTES:
            wrong.note(UsageError("no machine has so many bytes; sizes are bytes, or strings such as '2GiB'"))

    def _check_limits(self, wrong: Problems) -> None:
        if not isinstance(self.cpus, int | float) or not 0 < self.cpus < math.inf:
            wrong.note(UsageError(f"cpus is a positive number, not {self.cpus!r}"))
        if not isinstance(self.processes, int) or not 8 <= self.processes <= MAX_PROCESSES:
            wrong.note(
                UsageError(f"processes is a whole number from 8 to {MAX_PROCESSES}, not {self.processes!r}")
            )
        for name in ("cell_timeout", "call_timeout", "runtime_timeout"):
            with wrong.noting():
                check_seconds(getattr(self, name), name)
        if self.limits not in ("auto", "cgroup", "watchdog"):
            wrong.note(UsageError(f"unknown limits {self.limits!r}; use auto, cgroup or watchdog"))

    def _check_surroundings(self, wrong: Problems) -> None:
        if self.snapshots not in ("auto", "none"):
            wrong.note(UsageError(f"unknown snapshots {self.snapshots!r}; use auto or none"))
        if self.isolation not in ISOLATIONS:
            wrong.note(
                UsageError(f"unknown isolation {self.isolation!r}; use one of {', '.join(ISOLATIONS)}")
            )
        if not isinstance(self.noexec, bool):
            wrong.note(UsageError(f"noexec is True or False, not {self.noexec!r}"))
        if self.noexec and self.isolation == "none":
            wrong.note(UsageError('noexec=True takes a wall, and isolation "none" has none'))
        if not isinstance(self.tracking, bool):
            wrong.note(UsageError(f"tracking is True or False, not {self.tracking!r}"))
        self._check_network(wrong)
        if not isinstance(self.env, Mapping) or not all(map(_is_variable, self.env.items())):
            wrong.note(UsageError("env maps names to strings; no '=' in names, no NUL character anywhere"))
        if not _is_list_of(self.mounts, Mount):
            wrong.note(UsageError("mounts is a list of Mount objects"))
        if not _is_list_of(self.preload, str):
            wrong.note(UsageError('preload is a list of module names, such as ("numpy",)'))

    def _check_network(self, wrong: Problems) -> None:
        if self.network == "none":
            return
        if not isinstance(self.network, Allow):
            wrong.note(UsageError(f'network={self.network!r} is neither "none" nor Allow(["pypi.org", ...])'))
            return
        if self.isolation in ("landlock", "gvisor", "none"):
            wrong.note(
                UsageError(
                    f"network=Allow(...) takes a network namespace with a way out, which isolation "
                    f'{self.isolation!r} has not; use isolation="strict" or "auto"'
                )
            )

    @property
    def call_seconds(self) -> float:
        """What `call_timeout` comes to."""
        return self.call_timeout or self.cell_timeout or _CALL_SECONDS

    @property
    def memory_bytes(self) -> int:
        return parse_size(self.memory)

    @property
    def disk_bytes(self) -> int:
        return parse_size(self.disk)

    @property
    def output_bytes(self) -> int:
        return parse_size(self.output)


def _is_variable(item: tuple[object, object]) -> bool:
    name, text = item
    return (
        isinstance(name, str)
        and isinstance(text, str)
        and name != ""
        and "=" not in name
        and "\0" not in name + text
    )


def _is_list_of(items: object, kind: type) -> bool:
    """A string is none of strings: `preload="numpy"` would mean five modules of one letter."""
    return isinstance(items, list | tuple) and all(isinstance(item, kind) for item in items)
