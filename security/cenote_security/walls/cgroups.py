"""Where on this machine control groups can be made: v2 where it is delegated, v1 where it is writable.

Whoever makes a group needs the right to; whoever enters it only a descriptor that such a process has opened. So the
client makes the groups of its jails, and a zygote that gave root up long ago can still put a jail into one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Version = Literal["cgroup v1", "cgroup v2"]

NEEDED: Final = ("memory", "pids")
"""Without these two a group would not bound a jail, and is not used."""

WELCOME: Final = ("cpu", "cpuacct")
"""Quota and account of CPU time; v2 has both under the first name."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Folders in which groups can be made. folders: by controller; several may share one, in v2 all do."""

    version: Version
    folders: Mapping[str, Path]

    def describe(self) -> str:
        return f"{self.version}: {', '.join(self.folders)}"


def find_site() -> Site:
    """The best place for groups. Raises OSError, with the reason, when there is none."""
    try:
        return find_v2()
    except OSError:
        return find_v1()


def find_v2() -> Site:
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


def _v2_below(parent: Path) -> Site:
    offered = (parent / "cgroup.controllers").read_text().split()
    if missing := [name for name in NEEDED if name not in offered]:
        raise OSError(errno.ENOTSUP, f"{parent} offers no controller for {' and '.join(missing)}")
    controllers = [name for name in (*NEEDED, "cpu") if name in offered]
    enable(parent, controllers)
    _try_making(parent)
    return Site(version="cgroup v2", folders=dict.fromkeys(controllers, parent))


def enable(folder: Path, controllers: Iterable[str]) -> None:
    """Let children of a v2 group have these controllers."""
    switch = folder / "cgroup.subtree_control"
    wanted = set(controllers) - set(switch.read_text().split())
    if wanted:
        switch.write_text(" ".join(f"+{name}" for name in sorted(wanted)))


def find_v1() -> Site:
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
    return Site(version="cgroup v1", folders=folders)


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
