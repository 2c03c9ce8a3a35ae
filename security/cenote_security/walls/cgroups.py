"""Control groups: where they can be made, one for each jail, and a client's folder that its jails' groups are in.

Version 2 is used where it is delegated, version 1 where it is writable. Making a group takes a right to its parent;
entering it only a descriptor that such a process has opened. So the client makes the groups of its jails, and a
zygote that gave root up long ago can still put a jail into one. The client's folder is removed even if the client
was killed.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

from cenote_security.policy import SandboxPolicy

Version = Literal["cgroup v1", "cgroup v2"]

NEEDED: Final = ("memory", "pids")
"""Without these two a group would not bound a jail, and is not used."""

WELCOME: Final = ("cpu", "cpuacct")
"""Quota and account of CPU time; v2 has both under the first name."""


@dataclass(frozen=True, kw_only=True)
class CgroupSite:
    """Folders in which groups can be made. folders: by controller; several may share one, in v2 all do."""

    version: Version
    folders: Mapping[str, Path]

    def describe(self) -> str:
        return f"{self.version}: {', '.join(self.folders)}"


def find_site() -> CgroupSite:
    """The best place for groups. Raises OSError, with the reason, when there is none."""
    try:
        return find_v2()
    except OSError:
        return find_v1()


def find_v2() -> CgroupSite:
    """Below this process's own group or beside it.

    Beside, because the kernel lets no group have both processes and controllers for its children: a process that
    was given a group of its own, as by a systemd scope, finds room in the parent if that was delegated too.
    """
    path = next((line[3:] for line in _own_groups() if line.startswith("0::")), None)
    if path is None:
        raise OSError(errno.ENOENT, "no v2 hierarchy is known to this process")
    own = _folder(path, "cgroup2")
    failure = OSError(errno.ENOENT, "no group to try")
    for parent in (own, own.parent):
        try:
            return _v2_below(parent)
        except OSError as error:
            failure = error
    raise failure


def _v2_below(parent: Path) -> CgroupSite:
    offered = (parent / "cgroup.controllers").read_text().split()
    if missing := [name for name in NEEDED if name not in offered]:
        raise OSError(errno.ENOTSUP, f"{parent} offers no controller for {' and '.join(missing)}")
    controllers = [name for name in (*NEEDED, "cpu") if name in offered]
    enable(parent, controllers)
    _try_making(parent)
    return CgroupSite(version="cgroup v2", folders=dict.fromkeys(controllers, parent))


def enable(folder: Path, controllers: Iterable[str]) -> None:
    """Let children of a v2 group have these controllers."""
    switch = folder / "cgroup.subtree_control"
    wanted = set(controllers) - set(switch.read_text().split())
    if wanted:
        switch.write_text(" ".join(f"+{name}" for name in sorted(wanted)))


def find_v1() -> CgroupSite:
    """Below this process's own group of each controller."""
    paths = {
        controller: path
        for _, controllers, path in (line.split(":", 2) for line in _own_groups())
        for controller in controllers.split(",")
    }
    folders = {}
    for controller in (*NEEDED, *WELCOME):
        try:
            folder = _folder(paths.get(controller, ""), "cgroup", controller)
            _try_making(folder)
        except OSError:
            if controller in NEEDED:
                raise
        else:
            folders[controller] = folder
    return CgroupSite(version="cgroup v1", folders=folders)


def _own_groups() -> list[str]:
    return Path("/proc/self/cgroup").read_text().splitlines()


def _folder(path: str, kind: str, controller: str = "") -> Path:
    """Where a group shows in the file system. A container often sees a part of the hierarchy, as if it were all."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields = right.split()
        if fields[0] == kind and (not controller or controller in fields[2].split(",")):
            root, mount_point = left.split()[3:5]
            return Path(mount_point) / path.removeprefix(root.rstrip("/")).lstrip("/")
    raise OSError(errno.ENOENT, f"no {kind} hierarchy {controller}".rstrip() + " is mounted")


def _try_making(parent: Path) -> None:
    group = parent / f"cenote-probe-{os.getpid()}"
    group.mkdir()
    group.rmdir()


QUOTA_PERIOD: Final = 100_000
"""Microseconds, the kernel's own default: a jail that has used its part waits for the rest of it."""

_MAX_QUOTA: Final = 10**9
"""Ten thousand CPUs."""

_MAX_TASKS: Final = 2**22
"""PID_MAX_LIMIT: the kernel refuses to note more."""

_MAX_FILE: Final = 4096


@dataclass(frozen=True, kw_only=True)
class CgroupShare:
    """What a jail may use. memory: bytes, files in memory included. tasks: processes and threads. cpus: of time."""

    memory: int
    tasks: int
    cpus: float

    @classmethod
    def of(cls, policy: SandboxPolicy, *, base_memory: int, tasks: int) -> CgroupShare:
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
    def limits(self, share: CgroupShare) -> list[tuple[str, str, str]]:
        """(controller, file, text), in the order in which they must be written."""


class _V1(_Dialect):
    def limits(self, share: CgroupShare) -> list[tuple[str, str, str]]:
        return [
            ("memory", "memory.limit_in_bytes", str(share.memory)),
            ("memory", "memory.memsw.limit_in_bytes", str(share.memory)),
            ("pids", "pids.max", str(_tasks(share))),
            ("cpu", "cpu.cfs_period_us", str(QUOTA_PERIOD)),
            ("cpu", "cpu.cfs_quota_us", str(_quota(share))),
        ]


class _V2(_Dialect):
    """`memory.oom.group` stays 0: the kernel takes the process that has most, and the rest lives on."""

    def limits(self, share: CgroupShare) -> list[tuple[str, str, str]]:
        return [
            ("memory", "memory.max", str(share.memory)),
            ("memory", "memory.swap.max", "0"),
            ("pids", "pids.max", str(_tasks(share))),
            ("cpu", "cpu.max", f"{_quota(share)} {QUOTA_PERIOD}"),
        ]


def _quota(share: CgroupShare) -> int:
    """The kernel takes nothing below a millisecond, and no number that only a mistake can be."""
    return int(min(max(share.cpus * QUOTA_PERIOD, 1000), _MAX_QUOTA))


def _tasks(share: CgroupShare) -> int:
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

    def __init__(self, version: Version, folders: Mapping[str, Path], share: CgroupShare) -> None:
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
    def there(cls, version: Version, folders: Mapping[str, Path], share: CgroupShare) -> Self:
        """A group that another process has made, with whatever is in it."""
        group = cls.__new__(cls)
        group._begin(version, folders, share)
        group._open_accounts()
        return group

    def _begin(self, version: Version, folders: Mapping[str, Path], share: CgroupShare) -> None:
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
        """A descriptor, -1 for a file that this machine lacks: fewer accounts, the same limits."""
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
    """The number that a file holds, alone or after a name in its first line."""
    if descriptor < 0:
        return 0
    try:
        return int(os.pread(descriptor, _MAX_FILE, 0).split(b"\n", 1)[0].rsplit(b" ", 1)[-1])
    except (OSError, ValueError):
        return 0


_PREFIX: Final = "cenote-client-"


class ClientGroups:
    """Makes groups for jails. The client holds a lock on its folders for as long as it lives.

    The kernel drops a lock with its last holder, however that ends, so a folder without one is a dead client's: no
    pid is compared, which would be wrong between containers that share a hierarchy.
    """

    def __init__(self, site: CgroupSite) -> None:
        """Raises OSError when the groups cannot be made after all."""
        self.site = site
        self._name = _PREFIX + secrets.token_hex(8)
        self._parents = sorted(set(site.folders.values()))
        self._numbers = itertools.count(1)
        self._awaited: set[str] = set()
        self._deserted: frozenset[Path] = frozenset()
        for parent in self._parents:
            sweep(parent)
        self._locks = [_make_locked(parent / self._name) for parent in self._parents]
        if site.version == "cgroup v2":
            for parent in self._parents:
                enable(parent / self._name, site.folders)

    def make(self, share: CgroupShare, arrival: ExitStack) -> JailGroup:
        """A group for one more jail, which no sweep takes before `arrival` is closed. Raises OSError."""
        name = str(next(self._numbers))
        self._awaited.add(name)
        arrival.callback(self._awaited.discard, name)
        folders = {controller: parent / self._name / name for controller, parent in self.site.folders.items()}
        return JailGroup(self.site.version, folders, share)

    def sweep(self) -> None:
        """From time to time: what dead clients have left, and groups of jails that have ended unsupervised.

        An own group without processes goes when it had none at the last sweep either, else the supervisor of its jail
        may be about to look how that has died; and never while a jail is on its way into it, which may take long.
        """
        for parent in self._parents:
            sweep(parent)
        awaited = self._awaited.copy()  # before its processes are looked at
        own = (path for parent in self._parents for path in (parent / self._name).iterdir() if path.is_dir())
        left = (path for path in own if path.name not in awaited)
        deserted = frozenset(path for path in left if not (path / "cgroup.procs").read_bytes())
        for path in deserted & self._deserted:
            with suppress(OSError):
                path.rmdir()
        self._deserted = deserted

    def remove(self) -> None:
        """At the client's end. Groups with processes in them stay, for the next client to sweep."""
        for parent in self._parents:
            _remove(parent / self._name)
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()


def sweep(parent: Path) -> None:
    """Remove what clients that are dead have left below `parent`."""
    for folder in _folders_of_clients(parent):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)


def _folders_of_clients(parent: Path) -> Iterator[Path]:
    return (path for path in parent.iterdir() if path.name.startswith(_PREFIX))


def _make_locked(folder: Path) -> int:
    """Between the two steps a sweep may take it for a dead client's: then it is made again."""
    while True:
        folder.mkdir(exist_ok=True)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return lock
        os.close(lock)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir():
                with suppress(OSError):
                    path.rmdir()
        folder.rmdir()
