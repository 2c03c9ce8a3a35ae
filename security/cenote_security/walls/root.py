"""The private root of a jail: a template that all jails of one zygote share, and the folders that each has to itself.

The template is a read-only tree of system and interpreter, with an `/etc` of its own. It is built once, in the
zygote's own mount namespace; then the host's tree is detached, so that no later step, and no process forked from
here, can name a host path. Each jail inherits a copy. As pid 1 of the jail, in its own user, mount and pid
namespaces, it mounts its working directory, `/tmp`, `/dev/shm`, `/proc` and its view of CPUs on that.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cenote_security.policy import Mount, SandboxPolicy
from cenote_security.walls.identity import INSIDE_ID
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.level import WallError, building

SYSTEM_PATHS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
"""Programs and libraries, shown read-only as they are."""

ETC_SHOWN: Final = ("/etc/alternatives", "/etc/fonts", "/etc/ssl/certs")
"""Folders of `/etc` that programs and libraries below `/usr` point into."""

ETC_COPIED: Final = ("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/ssl/openssl.cnf")
"""Small files without secrets, copied, so that a symbolic link among them leads nowhere else."""

DEVICES: Final = ("null", "zero", "full", "random", "urandom")

DEVICE_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}


def etc_files(identity: int, home: str) -> dict[str, str]:
    """Synthesised files of `/etc`: one user, no network. Pure."""
    return {
        "/etc/passwd": f"cave:x:{identity}:{identity}:cave:{home}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "/etc/group": f"cave:x:{identity}:\nnogroup:x:65534:\n",
        "/etc/hosts": "127.0.0.1 localhost cenote\n::1 localhost cenote\n",
        "/etc/hostname": "cenote\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
        "/etc/resolv.conf": "",
    }


def cpu_files(count: int) -> dict[str, str]:
    """Files of `/sys/devices/system/cpu` that the C library counts processors by. Pure."""
    online = "0" if count == 1 else f"0-{count - 1}"
    return dict.fromkeys(("online", "possible", "present"), online + "\n")


WORKDIR: Final = "/workspace"

OTHERS_HOME: Final = "/home/user"
"""The working directory in E2B's sandboxes, and in code that models have seen of them."""

CPU_FOLDER: Final = "/sys/devices/system/cpu"
CPU_CHOICES: Final = "/sys/cenote/cpu_choices"
EMPTY_FOLDER: Final = "/sys/cenote/empty"
HELD_FOLDER: Final = "/sys/cenote/held"
"""Holds, by number, what each jail binds to its place itself: its own folders would hide it."""

WRITABLE_FOLDERS: Final = (WORKDIR, "/dev/shm", "/tmp")

_STAGE: Final = "/tmp"
"""Where the tree is put together. The mount hides the host's folder in this mount namespace only."""

_FOLDERS: Final = (*WRITABLE_FOLDERS, "/proc", CPU_FOLDER, EMPTY_FOLDER)
_BYTES: Final = 16 * 2**20
_SCRATCH_BYTES: Final = 16 * 2**20
"""For what libraries keep on disk when the zygote imports them, such as matplotlib's list of fonts. Each jail's own
`/tmp` lies over it."""

_READ_ONLY: Final = libc.MOUNT_ATTR_RDONLY | libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NODEV


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """A host file or folder taken hold of before the stage is mounted, when its path still means the host's."""

    target: str
    tree: int
    is_folder: bool
    attributes: int


@dataclass(frozen=True, kw_only=True)
class Pending:
    """What each jail puts into place itself. mounts: `(source, target)`; written: the targets that it may write to.
    links: symbolic ones, with their targets.
    """

    mounts: list[tuple[str, str]] = field(default_factory=list)
    written: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """links: symbolic ones, with their targets. files: with their content. points: where jails mount something, and
    whether that is a folder.
    """

    shown: list[_Shown] = field(default_factory=list)
    pending: Pending = field(default_factory=Pending)
    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    points: list[tuple[str, bool]] = field(default_factory=list)


def build_and_enter(visible: Iterable[str], mounts: Iterable[Mount], host_cpus: int) -> Pending:
    """Make the template the root of this process and forget the host's tree. Gives what is left to each jail.

    Needs a mount namespace of its own in which this process may mount. visible: host paths shown read-only at the
    same place. mounts: what the policy adds. host_cpus: how many processors the host has.
    Raises WallError.
    """
    with building("keep mounts from propagating"):
        libc.mount("none", "/", None, libc.MS_REC | libc.MS_PRIVATE)
    plan = _plan(visible, mounts)
    with building("mount the private root"):
        libc.mount("tmpfs", _STAGE, "tmpfs", libc.MS_NOSUID, f"mode=0755,size={_BYTES}")
        _write_tree(plan, host_cpus)
    for shown in plan.shown:
        with building(f"show {shown.target}"):
            _attach(shown)
    for target, is_folder in plan.points:
        with building(f"make {target}, where a mount of the policy goes,"):
            make_mount_point(_STAGE + target, is_folder=is_folder)
    _mount_proc_without_processes(_STAGE + "/proc")
    with building("enter the private root"):
        _enter()
    return plan.pending


# -- what is shown ----------------------------------------------------------------------------------------


def _plan(visible: Iterable[str], mounts: Iterable[Mount]) -> _Plan:
    plan = _Plan()
    paths = [*SYSTEM_PATHS, *ETC_SHOWN, *visible]
    # Parents first: they make children superfluous.
    for path in sorted(filter(os.path.lexists, paths), key=len):
        with building(f"show {path}"):
            _show(plan, path)
    for name in DEVICES:
        with building(f"show /dev/{name}"):
            _hold(plan, f"/dev/{name}", f"/dev/{name}", libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NOEXEC)
    for mount in mounts:
        writable = libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NODEV
        with building(f"show {mount.source}, a mount of the policy,"):
            attributes = writable if mount.writable else _READ_ONLY
            _leave_to_jails(plan, mount.source, mount.target, attributes)
            if mount.writable:
                plan.pending.written.add(mount.target)
            if not is_writable(mount.target):
                plan.points.append((mount.target, Path(mount.source).is_dir()))
    for path in filter(os.path.isfile, ETC_COPIED):
        plan.files[path] = Path(path).read_bytes()
    _link_home(plan)
    return plan


def _link_home(plan: _Plan) -> None:
    """Programs that were written for other sandboxes find the working directory where those have it."""
    taken = (
        {one.target for one in plan.shown} | plan.links.keys() | {target for _, target in plan.pending.mounts}
    )
    if not any(f"{path}/".startswith(f"{OTHERS_HOME}/") for path in taken):
        plan.links[OTHERS_HOME] = WORKDIR


def _show(plan: _Plan, path: str) -> None:
    """Plan a path read-only. A symbolic link stays one, and what it finally points to is shown too."""
    if any(path == one.target or path.startswith(one.target + "/") for one in plan.shown):
        return
    # A checkout below /tmp, or a container's project in /workspace, is for the zygote and for each jail again.
    hidden_later = is_writable(path)
    if not Path(path).is_symlink():
        _hold(plan, path, path, _READ_ONLY)
        if hidden_later:
            _leave_to_jails(plan, path, path, _READ_ONLY)
        return
    plan.links[path] = str(Path(path).readlink())
    if hidden_later:
        plan.pending.links[path] = plan.links[path]
    target = Path(path).resolve()
    if target.exists():
        _show(plan, str(target))


def _leave_to_jails(plan: _Plan, source: str, target: str, attributes: int) -> None:
    held = f"{HELD_FOLDER}/{len(plan.pending.mounts)}"
    _hold(plan, source, held, attributes)
    plan.pending.mounts.append((held, target))


def _hold(plan: _Plan, source: str, target: str, attributes: int) -> None:
    is_folder = Path(source).is_dir()
    shown = _Shown(target=target, tree=libc.open_tree(source), is_folder=is_folder, attributes=attributes)
    plan.shown.append(shown)


# -- the tree ---------------------------------------------------------------------------------------------


def _write_tree(plan: _Plan, host_cpus: int) -> None:
    for folder in _FOLDERS:
        Path(_STAGE + folder).mkdir(parents=True, exist_ok=True)
    scratch = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
    libc.mount("tmpfs", f"{_STAGE}/tmp", "tmpfs", scratch, f"mode=1777,size={_SCRATCH_BYTES}")
    etc = {path: text.encode() for path, text in etc_files(INSIDE_ID, WORKDIR).items()}
    _write_files(_STAGE, plan.files | etc)
    for count in range(1, host_cpus + 1):
        choice = {f"/{name}": text.encode() for name, text in cpu_files(count).items()}
        _write_files(f"{_STAGE}{CPU_CHOICES}/{count}", choice)
    devices = {f"/dev/{name}": target for name, target in DEVICE_LINKS.items()}
    for path, target in {**plan.links, **devices}.items():
        link = Path(_STAGE + path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def _write_files(root: str, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        file = Path(root + path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _attach(shown: _Shown) -> None:
    target = _STAGE + shown.target
    make_mount_point(target, is_folder=shown.is_folder)
    libc.move_mount(shown.tree, target)
    os.close(shown.tree)
    libc.mount_setattr(target, shown.attributes)


def make_mount_point(path: str, *, is_folder: bool) -> None:
    """Make an empty folder or file, and the folders above it, unless it is there."""
    (Path(path) if is_folder else Path(path).parent).mkdir(parents=True, exist_ok=True)
    if not is_folder and not Path(path).exists():
        Path(path).touch()


def is_writable(path: str) -> bool:
    """Whether a path lies in a folder that each jail has for itself."""
    return any(path == folder or path.startswith(folder + "/") for folder in WRITABLE_FOLDERS)


def _mount_proc_without_processes(target: str) -> None:
    """Mount the `/proc` of a pid namespace whose processes have ended.

    The kernel lets a user namespace mount a `/proc` only where one is fully visible already. Were that one the
    host's, it would lie below each jail's own; this one has no process in it.
    """
    with building("mount /proc"):
        child = os.fork()
        if child == 0:
            os._exit(_in_new_pid_namespace(target))
        _, status = os.waitpid(child, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise WallError("mount /proc", code, os.strerror(code) if code > 0 else f"killed by signal {-code}")


def _in_new_pid_namespace(target: str) -> int:
    """Mount `/proc` in a pid namespace that ends at once. Gives 0 or an errno; runs in a throwaway child."""
    try:
        libc.unshare(libc.CLONE_NEWPID)
        child = os.fork()
        if child == 0:
            os._exit(_mount_proc(target))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except OSError as error:
        return error.errno or 1


def _mount_proc(target: str) -> int:
    try:
        libc.mount("proc", target, "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
    except OSError as error:
        return error.errno or 1
    return 0


def _enter() -> None:
    os.chdir(_STAGE)
    libc.pivot_root(".", ".")
    # The old root is now mounted on top of the new one; detach it and stand on what is left.
    libc.umount(".", libc.MNT_DETACH)
    os.chdir("/")
    libc.mount("none", "/", None, libc.MS_BIND | libc.MS_REMOUNT | libc.MS_RDONLY | libc.MS_NOSUID)


BYTES_PER_INODE: Final = 4096
"""How a disk limit in bytes bounds the number of files: one per page, as if none were smaller."""

_MIN_INODES: Final = 1024
_SAFE: Final = libc.MS_NOSUID | libc.MS_NODEV
_HIDDEN_FILES: Final = ("cmdline", "config.gz", "kallsyms", "kcore", "key-users", "keys", "latency_stats",
                        "modules", "sched_debug", "sysrq-trigger", "timer_list", "vmallocinfo")  # fmt: skip
_HIDDEN_FOLDERS: Final = ("acpi", "asound", "bus", "driver", "fs", "irq", "scsi", "sysvipc", "tty")
_WRITABLE: Final = (("workspace", 0o700, WORKDIR), ("shm", 0o1777, "/dev/shm"), ("tmp", 0o1777, "/tmp"))


@dataclass(frozen=True, kw_only=True)
class Furniture:
    """What every jail of a zygote mounts alike, looked up once. cpu_choices: how many CPUs the host has.

    masks: `(source, target)` of what is laid over parts of `/proc`. pending: what the template could not place.
    """

    masks: tuple[tuple[str, str], ...]
    pending: Pending
    cpu_choices: int


def survey(pending: Pending) -> Furniture:
    """Look at the template, from inside."""
    files = [("/dev/null", f"/proc/{name}") for name in _HIDDEN_FILES]
    folders = [(EMPTY_FOLDER, f"/proc/{name}") for name in _HIDDEN_FOLDERS]
    masks = tuple(mask for mask in (*files, *folders) if Path(mask[1]).exists())
    return Furniture(masks=masks, pending=pending, cpu_choices=len(list(Path(CPU_CHOICES).iterdir())))


def furnish(furniture: Furniture, policy: SandboxPolicy) -> None:
    """Mount everything that is this jail's own and name the machine. Raises WallError."""
    furnish_folders(furniture, policy)
    with building("mount /proc"):
        _mount_jail_proc(furniture)
    show_cpus(furniture, policy)
    with building("set the host name"):
        socket.sethostname("cenote")
    os.chdir(WORKDIR)


def furnish_folders(furniture: Furniture, policy: SandboxPolicy) -> None:
    """Mount the folders that the jail may write to. Raises WallError."""
    with building("mount the working directory"):
        _mount_disk(policy)
    _place(furniture.pending, policy)


def show_cpus(furniture: Furniture, policy: SandboxPolicy) -> None:
    """Let the C library count as many processors as the policy gives. Raises WallError."""
    with building("show the policy's CPUs"):
        shown = min(policy.whole_cpus, furniture.cpu_choices)
        libc.mount(f"{CPU_CHOICES}/{shown}", CPU_FOLDER, None, libc.MS_BIND)


def _place(pending: Pending, policy: SandboxPolicy) -> None:
    for source, target in pending.mounts:
        with building(f"mount {target}"):
            if is_writable(target):
                make_mount_point(target, is_folder=Path(source).is_dir())
            libc.mount(source, target, None, libc.MS_BIND | libc.MS_REC)
            if policy.noexec and target in pending.written:
                libc.mount_setattr(target, libc.MOUNT_ATTR_NOEXEC)
    for path, target in pending.links.items():
        with building(f"link {path}"):
            link = Path(path)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)


def _mount_disk(policy: SandboxPolicy) -> None:
    """One tmpfs for all writable folders: the limit holds for them together."""
    disk = policy.disk_bytes
    options = f"mode=0755,size={disk},nr_inodes={max(_MIN_INODES, disk // BYTES_PER_INODE)}"
    libc.mount("tmpfs", "/tmp", "tmpfs", _SAFE | (libc.MS_NOEXEC if policy.noexec else 0), options)
    os.umask(0)
    for name, mode, target in _WRITABLE:
        folder = f"/tmp/{name}"
        os.mkdir(folder, mode)  # noqa: PTH102  (this is the hot path of a start)
        libc.mount(folder, target, None, libc.MS_BIND)
    os.umask(0o077)


def _mount_jail_proc(furniture: Furniture) -> None:
    """Read-only, so that nothing in it can be set; processes that may not be traced do not show."""
    flags = _SAFE | libc.MS_NOEXEC | libc.MS_RDONLY
    libc.mount("proc", "/proc", "proc", flags, "hidepid=invisible")
    for source, target in furniture.masks:
        libc.mount(source, target, None, libc.MS_BIND)
