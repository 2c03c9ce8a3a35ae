"""One jail's control group: what it may use, what it uses, what the kernel did when it wanted more."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cenote_security.policy import SandboxPolicy
from cenote_security.walls.cgroups import Version

QUOTA_PERIOD: Final = 100_000
"""Microseconds, the kernel's own default: a jail that has used its part waits for the rest of it."""

_MAX_QUOTA: Final = 10**9
"""Ten thousand CPUs."""

_MAX_TASKS: Final = 2**22
"""PID_MAX_LIMIT: the kernel refuses to note more."""

_MAX_FILE: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a jail may use. memory: bytes, files in memory included. tasks: processes and threads. cpus: of time."""

    memory: int
    tasks: int
    cpus: float

    @classmethod
    def of(cls, policy: SandboxPolicy, *, base_memory: int, tasks: int) -> Share:
        """base_memory: what the jail begins with. tasks: the policy's, and those of the walls."""
        return cls(memory=policy.memory_bytes + base_memory, tasks=tasks, cpus=policy.cpus)


@dataclass(frozen=True, kw_only=True)
class _Dialect(ABC):
    """The names of the same things in the two versions. Each is (controller, file)."""

    entrance: str
    peak: tuple[str, str]
    now: tuple[str, str]
    kills: tuple[str, str]
    cpu: tuple[str, str]
    cpu_units: int

    @abstractmethod
    def limits(self, share: Share) -> list[tuple[str, str, str]]:
        """(controller, file, text), in the order in which they must be written."""


class _V1(_Dialect):
    def limits(self, share: Share) -> list[tuple[str, str, str]]:
        return [
            ("memory", "memory.limit_in_bytes", str(share.memory)),
            ("memory", "memory.memsw.limit_in_bytes", str(share.memory)),
            ("pids", "pids.max", str(_tasks(share))),
            ("cpu", "cpu.cfs_period_us", str(QUOTA_PERIOD)),
            ("cpu", "cpu.cfs_quota_us", str(_quota(share))),
        ]


class _V2(_Dialect):
    """`memory.oom.group` stays 0: the kernel takes the process that has most, and the rest lives on."""

    def limits(self, share: Share) -> list[tuple[str, str, str]]:
        return [
            ("memory", "memory.max", str(share.memory)),
            ("memory", "memory.swap.max", "0"),
            ("pids", "pids.max", str(_tasks(share))),
            ("cpu", "cpu.max", f"{_quota(share)} {QUOTA_PERIOD}"),
        ]


def _quota(share: Share) -> int:
    """The kernel takes nothing below a millisecond, and no number that only a mistake can be."""
    return int(min(max(share.cpus * QUOTA_PERIOD, 1000), _MAX_QUOTA))


def _tasks(share: Share) -> int:
    return min(share.tasks, _MAX_TASKS)


_DIALECTS: Final[Mapping[Version, _Dialect]] = {
    "cgroup v1": _V1(
        entrance="tasks",
        peak=("memory", "memory.max_usage_in_bytes"),
        now=("memory", "memory.usage_in_bytes"),
        kills=("memory", "memory.oom_control"),
        cpu=("cpuacct", "cpuacct.usage"),
        cpu_units=10**9,
    ),
    "cgroup v2": _V2(
        entrance="cgroup.procs",
        peak=("memory", "memory.peak"),
        now=("memory", "memory.current"),
        kills=("memory", "memory.events"),
        cpu=("cpu", "cpu.stat"),
        cpu_units=10**6,
    ),
}

_OPTIONAL: Final = ("memory.memsw.limit_in_bytes", "memory.swap.max")
"""Not there in kernels that count no swap for groups."""


class JailGroup:
    """Made with its limits, before anything is in it. folders: by controller, not there yet."""

    def __init__(self, version: Version, folders: Mapping[str, Path], share: Share) -> None:
        """Raises OSError; nothing is left then."""
        self._begin(version, folders, share)
        try:
            for folder in dict.fromkeys(folders.values()):
                folder.mkdir()
            self._set_limits()
            self._open_accounts()
        except OSError:
            self.close()
            self.remove()
            raise

    @classmethod
    def there(cls, version: Version, folders: Mapping[str, Path], share: Share) -> Self:
        """A group that another process has made, with whatever is in it."""
        group = cls.__new__(cls)
        group._begin(version, folders, share)
        group._open_accounts()
        return group

    def _begin(self, version: Version, folders: Mapping[str, Path], share: Share) -> None:
        self.version = version
        self.share = share
        self.folders = folders
        self._dialect = _DIALECTS[version]
        self._peak = self._cpu = -1

    def _open_accounts(self) -> None:
        self._peak = self._open(*self._dialect.peak, os.O_RDWR)
        self._cpu = self._open(*self._dialect.cpu, os.O_RDONLY)

    @property
    def counts_cpu(self) -> bool:
        """Whether `cpu_seconds` says anything."""
        return self._cpu >= 0

    def entrances(self, until: ExitStack) -> tuple[int, ...]:
        """Descriptors that `until` closes; a process that writes `0` to each is in the group."""
        entrances = []
        for folder in dict.fromkeys(self.folders.values()):
            entrances.append(os.open(folder / self._dialect.entrance, os.O_WRONLY | os.O_CLOEXEC))
            until.callback(os.close, entrances[-1])
        return tuple(entrances)

    # -- accounts --

    def forget_peak(self) -> None:
        """Begin to look for a new peak. Kernels before 6.12 cannot with v2: there it is the highest ever."""
        with suppress(OSError):
            os.pwrite(self._peak, b"0", 0)

    def peak(self) -> int:
        """The most memory in use since `forget_peak`, bytes; 0 where the kernel does not say."""
        return _first_number(self._peak)

    def cpu_seconds(self) -> float:
        """CPU time of everything that ever was in the group; 0 where the kernel does not say."""
        return _first_number(self._cpu) / self._dialect.cpu_units

    def memory(self) -> int:
        """Bytes in use now."""
        return self._count(*self._dialect.now)

    def kills(self) -> int:
        """How many processes of this group the kernel has killed for memory."""
        return self._count(*self._dialect.kills, name="oom_kill")

    # -- end --

    def close(self) -> None:
        """Let go of its files; the group stays."""
        for descriptor in (self._peak, self._cpu):
            if descriptor >= 0:
                os.close(descriptor)
        self._peak = self._cpu = -1

    def kill(self) -> None:
        """End every process in it at once; nothing where the kernel has no file for that (v1, Linux before 5.14)."""
        for folder in dict.fromkeys(self.folders.values()):
            with (
                suppress(OSError),
                open(os.open(folder / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC), "w") as file,
            ):
                file.write("1")

    def remove(self) -> bool:
        """False while there are processes in it."""
        gone = True
        for folder in dict.fromkeys(self.folders.values()):
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
        return gone

    # -- files --

    def _set_limits(self) -> None:
        for controller, file, text in self._dialect.limits(self.share):
            if controller in self.folders:
                try:
                    (self.folders[controller] / file).write_text(text)
                except OSError:
                    if file not in _OPTIONAL:
                        raise

    def _open(self, controller: str, file: str, mode: int) -> int:
        """-1 for what this machine does not have: fewer accounts, the same limits."""
        if controller not in self.folders:
            return -1
        path = self.folders[controller] / file
        for flags in (mode, os.O_RDONLY):
            with suppress(OSError):
                return os.open(path, flags | os.O_CLOEXEC)
        return -1

    def _count(self, controller: str, file: str, name: str = "") -> int:
        """A number of a file that holds one, or lines of a name and a number. 0 for what is not there."""
        with suppress(OSError, KeyError, ValueError):
            text = (self.folders[controller] / file).read_text()
            if not name:
                return int(text)
            return next((int(line.split()[1]) for line in text.splitlines() if line.split()[0] == name), 0)
        return 0


def _first_number(descriptor: int) -> int:
    """The number that a file is, or that its first line has behind a name."""
    if descriptor < 0:
        return 0
    try:
        return int(os.pread(descriptor, _MAX_FILE, 0).split(b"\n", 1)[0].rsplit(b" ", 1)[-1])
    except (OSError, ValueError):
        return 0
