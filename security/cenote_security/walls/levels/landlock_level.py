"""The `landlock` level: Landlock and seccomp without namespaces, for machines that forbid those.

What it gives up against `strict`, since neither Landlock nor seccomp can give it: host files can be asked for by
name and show their metadata (not their content), other processes' existence shows, `/dev/shm` is closed, so that
process pools and locks of `multiprocessing` do not work, the disk limit is per file, and no address can be connected
to, not even of a socket file of its own. Not started by root, the jail runs as the user who started it, and must not
change modes, owners or times of files at all, its own included.

A Python below `/root` is common where everything runs as root. With a private root its folders are shown at their
places; without one, root can still lay an empty folder over the closed one, in a mount namespace of the zygote's
own, with nothing in it but what a jail needs.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cenote_security.policy import Mount
from cenote_security.walls import identity, limits, restrictions, root
from cenote_security.walls.identity import UserIds
from cenote_security.walls.kernel import landlock
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.kernel.landlock import Grant
from cenote_security.walls.level import Home, JailAllowance, Level, WallError, building
from cenote_security.walls.levels.host_folders import Folders

_READ_ONLY: Final = libc.MOUNT_ATTR_RDONLY | libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NODEV


def closed_folders(paths: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """`{folder that others may not enter: the paths below it}`, for absolute paths. Outermost folder each."""
    found: dict[str, list[str]] = {}
    for path in paths:
        closed = next((str(parent) for parent in reversed(Path(path).parents) if _is_closed(parent)), None)
        if closed is not None and os.path.lexists(path):
            found.setdefault(closed, []).append(path)
    return {folder: tuple(inside) for folder, inside in found.items()}


def _is_closed(folder: Path) -> bool:
    try:
        return not folder.stat().st_mode & stat.S_IXOTH
    except FileNotFoundError:
        return False


def open_up(paths: Iterable[str]) -> None:
    """Make `paths` reachable for any user, in a mount namespace of this process's own. Does nothing if they are.

    Needs root with CAP_SYS_ADMIN, when there is something to do. Raises WallError.
    """
    closed = closed_folders(paths)
    if not closed:
        return
    with building(
        f"let an unprivileged user reach Python below {', '.join(closed)}, which only root may enter,"
    ):
        libc.unshare(libc.CLONE_NEWNS)
        libc.mount("none", "/", None, libc.MS_REC | libc.MS_PRIVATE)
        for folder, inside in closed.items():
            _show_only(folder, inside)


def _show_only(folder: str, inside: tuple[str, ...]) -> None:
    links = {path: str(Path(path).readlink()) for path in inside if Path(path).is_symlink()}
    trees = {path: (libc.open_tree(path), Path(path).is_dir()) for path in inside if path not in links}
    libc.mount("tmpfs", folder, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=0755,size=1m")
    for path, target in links.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).symlink_to(target)
    for path, (tree, is_folder) in trees.items():
        (Path(path) if is_folder else Path(path).parent).mkdir(parents=True, exist_ok=True)
        if not is_folder:
            Path(path).touch()
        libc.move_mount(tree, path)
        os.close(tree)
    libc.mount_setattr(folder, _READ_ONLY)


# Facts about the machine that libraries size themselves by. Of /proc, a worker has these and part of its own folder.
_PROC_FILES: Final = ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys/vm/overcommit_memory", "uptime",
                      "version")  # fmt: skip
# Not `net`, nor `task`, below which there is a `net` per thread: without a network namespace it names each socket
# and connection of the machine.
_OWN_PROC_FILES: Final = ("auxv", "cgroup", "cmdline", "comm", "environ", "fd", "fdinfo", "io", "limits", "maps",
                          "mem", "mountinfo", "mounts", "oom_score", "oom_score_adj", "pagemap", "smaps",
                          "smaps_rollup", "stat", "statm", "status")  # fmt: skip


class LandlockLevel(Level):
    name = "landlock"
    ends_with_warden = False
    holds_signals = True

    def __init__(self, host_proc: int) -> None:
        self._is_root = os.geteuid() == 0
        self._host_proc = host_proc
        self._oom_score = limits.score_of_jails(host_proc)
        with building("find users for the jails"):
            self._users = UserIds.take(host_proc) if self._is_root else None
        self._shares_user = self._users is None or self._users.shared
        self._filter = restrictions.call_filter("landlock", shares_user=self._shares_user)
        self._last_capability = identity.last_capability(host_proc)
        self._folders: Folders | None = None
        self._grants: tuple[Grant, ...] = ()
        self._rules = -1

    def prepare(self, visible: Sequence[str], mounts: Sequence[Mount]) -> None:
        paths = (*root.SYSTEM_PATHS, *root.ETC_SHOWN, *root.ETC_COPIED, *visible)
        if self._is_root:
            open_up(visible)
        with building("make the working folders"):
            self._folders = Folders()
        self._grants = (
            *(Grant(path=path, access=landlock.READ) for path in paths),
            *(_grant_of(mount) for mount in mounts),
            *restrictions.DEVICE_GRANTS,
            *(Grant(path=f"/proc/{name}", access=landlock.READ) for name in _PROC_FILES),
        )

    def home(self, number: int) -> Home:
        return self._own_folders.home(number)

    def enter(self, allowance: JailAllowance) -> None:
        with building("set the out-of-memory score"):
            identity.write_proc(self._host_proc, "oom_score_adj", self._oom_score)
        with building("make the working folder"):
            owner = None if self._users is None else self._users.of(allowance.seat)
            self._own_folders.make(allowance.number, owner)
        with building("become an unprivileged user"):
            if owner is not None:
                identity.drop_bounding_set(self._last_capability)
                identity.become(owner)
            identity.forbid_new_privileges()

    def settle(self, allowance: JailAllowance) -> None:
        with building("enter the working folder"):
            os.chdir(self.home(allowance.number).workdir)
        with building("set limits"):
            # Orphans of the jail come to the warden, which can then find and end them.
            libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
            others = limits.tasks_of(os.geteuid()) if self._shares_user else 1
            policy = allowance.policy
            limits.apply(allowance.memory, policy.disk_bytes, policy.processes + others)
        own = Grant(path=str(self._own_folders.root(allowance.number)), access=landlock.WRITE)
        self._filter, self._grants = restrictions.as_wanted(
            policy, "landlock", self._filter, (*self._grants, own), shares_user=not self._is_root
        )

    def fence_warden(self) -> None:
        """The warden may read all of `/proc`, to account for its jail; its own files there are root's."""
        with building("keep the warden from being traced"):
            libc.prctl(libc.PR_SET_DUMPABLE, 0)
        self._confine_with_proc()
        _prove_that_signals_stay_inside()
        restrictions.filter_calls(self._filter)

    def fence_attendant(self) -> None:
        self._confine_with_proc()

    def fence_worker(self) -> None:
        with building("bind the worker to its warden"):
            libc.prctl(libc.PR_SET_DUMPABLE, 1)
            libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        own = (Grant(path=f"/proc/self/{name}", access=landlock.READ) for name in _OWN_PROC_FILES)
        restrictions.confine_paths(restrictions.ruleset((*self._grants, *own)))

    def _confine_with_proc(self) -> None:
        rules = restrictions.ruleset((*self._grants, Grant(path="/proc", access=landlock.READ)))
        try:
            restrictions.confine_paths(rules)
        finally:
            os.close(rules)

    def clean_up(self, number: int) -> None:
        self._own_folders.remove(number)

    def close(self) -> None:
        self._own_folders.close()

    @property
    def _own_folders(self) -> Folders:
        assert self._folders is not None, "prepare comes before any jail"
        return self._folders


def _prove_that_signals_stay_inside() -> None:
    """The warden ends its jail with a signal to all that it can reach: one may not come to that without this proof.

    The process that started the warden is there until the jail is ready, outside of the domain, and the same user's.
    """
    with suppress(PermissionError):
        os.kill(os.getppid(), 0)
        raise WallError("keep signals inside the jail", 0, "Landlock let one pass")


def _grant_of(mount: Mount) -> Grant:
    if mount.target != mount.source:
        detail = f"{mount.source} cannot appear at {mount.target}: that takes a mount namespace"
        raise WallError("show a mount of the policy", 0, detail)
    return Grant(path=mount.source, access=landlock.WRITE if mount.writable else landlock.READ)
