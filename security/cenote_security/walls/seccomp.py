"""The system calls that a jail may make, as a seccomp program. Pure: a level and a machine in, bytes out.

A deny list with a ceiling: known-dangerous calls are refused, calls newer than the tables do not exist.
An allow list would be shorter to defend and break a library each month; the private root, the namespaces
and Landlock are what the guarantee rests on, and this list takes the kernel's rarely walked paths away.

Most calls that programs make by the thousand are allowed by their number alone, whatever their arguments. The kernel
finds that out when a filter is installed (since 5.11) and runs it no more for them: what is left is the cost of a
filter that allows everything, some 30 ns a call.

Refusals are errors, not kills: libraries probe, and are content with ENOSYS. Only a call through a foreign
architecture's table kills, since there the numbers mean other calls and no honest program does it.
"""

from __future__ import annotations

import errno
from typing import Final, Literal, get_args

from cenote_security.walls.kernel import bpf
from cenote_security.walls.kernel.syscalls import HIGHEST, Machine, lookup

FilterLevel = Literal["strict", "landlock"]

ALLOW: Final = 0x7FFF_0000
KILL_PROCESS: Final = 0x8000_0000
_ERRNO: Final = 0x0005_0000

AUDIT_ARCH: Final[dict[Machine, int]] = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32_BIT: Final = 0x4000_0000

_NUMBER_OFFSET: Final = 0
_ARCH_OFFSET: Final = 4


def _low_word(argument: int) -> int:
    return 16 + 8 * argument


def refuse(code: int) -> int:
    """The verdict that fails a call with an errno."""
    return _ERRNO | code


# Refused with EPERM: a program takes this as a plain refusal.
_FORBIDDEN: Final = (
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp",
    "pidfd_getfd", "migrate_pages", "move_pages", "bpf", "perf_event_open", "userfaultfd", "vmsplice",
    "keyctl", "add_key", "request_key", "unshare", "setns", "mount", "umount2", "pivot_root", "chroot",
    "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
    "mount_setattr", "statmount", "listmount", "listns", "open_by_handle_at", "name_to_handle_at",
    "fanotify_init", "fanotify_mark", "kexec_load", "kexec_file_load", "init_module", "finit_module",
    "delete_module", "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "vhangup",
    "sethostname", "setdomainname", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex",
    "lookup_dcookie", "lsm_set_self_attr", "lsm_get_self_attr", "lsm_list_modules", "iopl", "ioperm",
    "modify_ldt", "shmget", "shmat", "shmdt", "shmctl", "semget", "semop", "semtimedop", "semctl",
    "msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive",
    "mq_notify", "mq_getsetattr", "seccomp",
)  # fmt: skip

# Refused with ENOSYS: libraries have another way when the kernel lacks these. clone3 passes its flags in memory,
# which a filter cannot read; the C library falls back to clone. The kernel's asynchronous operations are counted for
# the machine as a whole (fs.aio-max-nr), so that one jail could take those of its database.
_ABSENT: Final = (
    "io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents", "io_pgetevents",
    "clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret", "nfsservctl",
    "uselib", "ustat", "sysfs", "_sysctl", "create_module", "get_kernel_syms", "query_module",
)  # fmt: skip

# Answered as if done, and nothing is: they write out what other programs of the machine have changed, again and again
# if they are called in a loop. No file of a jail outlives it, so that there is nothing for them to make durable.
_IDLE: Final = ("sync", "syncfs")

# Landlock lets a process change the mode, owner, times and attributes of any file that its user owns, and watch any
# folder. Where a jail runs as the user who started it, that reaches the user's own files.
_METADATA: Final = (
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat", "utime", "utimes",
    "futimesat", "utimensat", "file_setattr",
)  # fmt: skip

# Landlock has no say in extended attributes either, and a process that may write to a file may set them:
# a place to leave bytes on any host file that is open to all. Data work does not need them.
_ATTRIBUTES: Final = (
    "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr",
    "removexattrat",
)  # fmt: skip

# Allowed on the caller itself (0), by the position of the argument that says whom: the same user's other processes,
# the warden among them, are not a jail's to slow down or limit.
_AIMED: Final = {
    "sched_setaffinity": 0, "sched_setattr": 0, "sched_setparam": 0, "sched_setscheduler": 0,
    "setpriority": 1, "ioprio_set": 1,
}  # fmt: skip
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1

_NEW_NAMESPACES: Final = 0x7E02_0000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET = 1, 2, 5
_IPPROTO_ANY, _IPPROTO_TCP, _IPPROTO_UDP = 0, 6, 17
_SOCK_TYPE_MASK: Final = 0xF
_AT_EMPTY_PATH: Final = 0x1000

# Terminal input injection, console injection, line discipline (modules get loaded for it).
_FORBIDDEN_IOCTLS: Final = (0x5412, 0x541C, 0x5423)

# A descriptor may be closed by the process that received it, and closing a socket that lingers waits for its peer, as
# long as the jail has said: its supervisor, which reads for all jails, and the kernel's own threads would wait.
_SOL_SOCKET, _SO_LINGER = 1, 13

# What programs do with a descriptor: copy it, its flags, locks, owners and signals, the size of a pipe, seals, hints.
# Not here, so refused as commands that the kernel does not know: leases and delegations (F_SETLEASE, F_SETDELEG), for
# which the user's own programs wait fs.lease-break-time when they open or change a file that the jail may only read,
# again and again; F_NOTIFY; and what later kernels add.
_FCNTLS: Final = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 17, 36, 37, 38, 1025, 1027, 1028, 1029, 1030, 1031, 1032, 1033,
    1034, 1035, 1036, 1037, 1038, 1039,
)  # fmt: skip

# What programs ask of prctl about themselves. Not here, so refused: securebits, ptracer, seccomp, mm, keepcaps,
# subreaper, syscall dispatch, core scheduling. Dumpable may be switched on, which a worker does after its warden
# switched it off; switched off, a process could hide its memory from the accounting.
_PRCTLS: Final = (
    1, 2, 3, 7, 15, 16, 21, 23, 27, 29, 30, 37, 38, 39, 40, 41, 42, 50, 51, 52, 54, 63, 64, 0x53564D41,
)  # fmt: skip

_allow: Final = bpf.give(ALLOW)
_eperm: Final = bpf.give(refuse(errno.EPERM))
_no_family: Final = bpf.give(refuse(errno.EAFNOSUPPORT))
_no_protocol: Final = bpf.give(refuse(errno.EPROTONOSUPPORT))

_CLONE: Final = (
    *bpf.load(_low_word(0)),
    *bpf.when(bpf.JUMP_IF_ANY_BIT, _NEW_NAMESPACES, _eperm),
    *_allow,
)
_PR_SET_DUMPABLE: Final = 4
_PRCTL: Final = (
    *bpf.load(_low_word(0)),
    *bpf.among(_PRCTLS, _allow),
    *bpf.when(
        bpf.JUMP_IF_EQUAL, _PR_SET_DUMPABLE, (*bpf.load(_low_word(1)), *bpf.among((1,), _allow), *_eperm)
    ),
    *_eperm,
)
_SETSOCKOPT: Final = (
    *bpf.load(_low_word(1)),
    *bpf.when(
        bpf.JUMP_IF_EQUAL, _SOL_SOCKET, (*bpf.load(_low_word(2)), *bpf.among((_SO_LINGER,), _eperm), *_allow)
    ),
    *_allow,
)
_FCNTL: Final = (*bpf.load(_low_word(1)), *bpf.among(_FCNTLS, _allow), *bpf.give(refuse(errno.EINVAL)))
# Huge pages of the machine count as the memory of no process or jail: no limit covers them, and there are few.
# Without the flag (MAP_HUGETLB, MFD_HUGETLB) the kernel uses others, which count.
_no_huge_pages: Final = bpf.give(refuse(errno.ENOMEM))
_MAP_HUGETLB, _MFD_HUGETLB = 0x4_0000, 0x4
_MMAP: Final = (
    *bpf.load(_low_word(3)),
    *bpf.when(bpf.JUMP_IF_ANY_BIT, _MAP_HUGETLB, _no_huge_pages),
    *_allow,
)
_MEMFD: Final = (
    *bpf.load(_low_word(1)),
    *bpf.when(bpf.JUMP_IF_ANY_BIT, _MFD_HUGETLB, _no_huge_pages),
    *_allow,
)
_IOCTL: Final = (*bpf.load(_low_word(1)), *bpf.among(_FORBIDDEN_IOCTLS, _eperm), *_allow)
# 0 is what every process has; 0xFFFFFFFF asks.
_PERSONALITY: Final = (*bpf.load(_low_word(0)), *bpf.among((0, 0xFFFF_FFFF), _allow), *_eperm)
# A program without a name: executing an anonymous memory file.
_EXECVEAT: Final = (*bpf.load(_low_word(4)), *bpf.when(bpf.JUMP_IF_ANY_BIT, _AT_EMPTY_PATH, _eperm), *_allow)
# A memory file can be executed unless it is made with this flag. It is on no mount and below no path of Landlock's.
_MFD_NOEXEC_SEAL: Final = 0x8
_MEMFD_NOEXEC: Final = (
    *bpf.load(_low_word(1)),
    *bpf.when(bpf.JUMP_IF_ANY_BIT, _MFD_HUGETLB, _no_huge_pages),
    *bpf.when(bpf.JUMP_IF_ANY_BIT, _MFD_NOEXEC_SEAL, _allow),
    *bpf.give(refuse(errno.EACCES)),
)


def _sockets(families: tuple[int, ...], types: tuple[int, ...], protocols: tuple[int, ...]) -> bpf.Code:
    """Only sockets of these kinds. For any other the kernel would look for, and load, a module that knows it."""
    of_type = (*bpf.load(_low_word(2)), *bpf.among(protocols, _allow), *_no_protocol)
    of_family = (
        *bpf.load(_low_word(1)),
        *bpf.keep_bits(_SOCK_TYPE_MASK),
        *bpf.among(types, of_type),
        *_eperm,
    )
    return (*bpf.load(_low_word(0)), *bpf.among(families, of_family), *_no_family)


# The network namespace is empty; this keeps netlink, packet, vsock, alg and their kind out of reach, and SCTP, DCCP,
# MPTCP and SMC, which hide behind the family of TCP.
_SOCKET: Final = _sockets(
    (_AF_UNIX, _AF_INET, _AF_INET6),
    (_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET),
    (_IPPROTO_ANY, _IPPROTO_TCP, _IPPROTO_UDP),
)
# A pair of any family is first made as two sockets of it, so the family is looked at here too.
_SOCKETPAIR: Final = _sockets((_AF_UNIX,), (_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET), (_IPPROTO_ANY,))
# Without a network namespace there must be no way to name a peer: no socket but a connected pair. Of a pair, a
# datagram end could still send to another address; stream and seqpacket ends cannot.
_CONNECTED_PAIR: Final = _sockets((_AF_UNIX,), (_SOCK_STREAM, _SOCK_SEQPACKET), (_IPPROTO_ANY,))


_RLIMIT_CORE: Final = 4
# Lowering the limit from 1 to 0 would switch core dumps into the host's handler on again.
_SETRLIMIT: Final = (*bpf.load(_low_word(0)), *bpf.among((_RLIMIT_CORE,), _eperm), *_allow)
_IF_NOT_NULL: Final = tuple(
    step
    for half in (_low_word(2), _low_word(2) + 4)
    for step in (*bpf.load(half), *bpf.when(bpf.JUMP_IF_AT_LEAST, 1, _eperm))
)
_PRLIMIT: Final = (
    *bpf.load(_low_word(0)),
    *bpf.when(bpf.JUMP_IF_AT_LEAST, 1, _eperm),
    *bpf.load(_low_word(1)),
    *bpf.when(bpf.JUMP_IF_EQUAL, _RLIMIT_CORE, (*_IF_NOT_NULL, *_allow)),
    *_allow,
)


def _on_itself(argument: int) -> bpf.Code:
    return (*bpf.load(_low_word(argument)), *bpf.among((0,), _allow), *_eperm)


def _of_kind(kind: int, then: bpf.Code) -> bpf.Code:
    """For calls whose first argument says whether the second is a process, a group or a user."""
    return (*bpf.load(_low_word(0)), *bpf.when(bpf.JUMP_IF_EQUAL, kind, then), *_eperm)


def _rules(level: FilterLevel, shares_user: bool, runs_memory_files: bool) -> dict[str, bpf.Code]:
    rules = {name: _eperm for name in _FORBIDDEN}
    rules |= {name: _on_itself(argument) for name, argument in _AIMED.items()}
    rules["setpriority"] = _of_kind(_PRIO_PROCESS, rules["setpriority"])
    rules["ioprio_set"] = _of_kind(_IOPRIO_WHO_PROCESS, rules["ioprio_set"])
    rules |= {name: bpf.give(refuse(errno.ENOSYS)) for name in _ABSENT}
    rules |= {name: bpf.give(refuse(0)) for name in _IDLE}
    rules |= {"mmap": _MMAP, "fcntl": _FCNTL, "memfd_create": _MEMFD}
    rules |= {"clone": _CLONE, "prctl": _PRCTL, "ioctl": _IOCTL, "personality": _PERSONALITY}
    rules |= {"execveat": _EXECVEAT, "setrlimit": _SETRLIMIT, "prlimit64": _PRLIMIT}
    rules |= {"socket": _SOCKET, "socketpair": _SOCKETPAIR, "setsockopt": _SETSOCKOPT}
    if level == "landlock":
        rules |= {"socket": _no_family, "connect": _eperm, "socketpair": _CONNECTED_PAIR}
        rules |= {name: _eperm for name in ("inotify_add_watch", *_ATTRIBUTES)}
    if shares_user:
        rules |= {name: _eperm for name in _METADATA}
    if shares_user and level == "landlock":
        # Their number counts for the user, and without a watch, which is refused above, they are of no use.
        rules |= {name: bpf.give(refuse(errno.ENOSYS)) for name in ("inotify_init", "inotify_init1")}
    if not runs_memory_files:
        rules["memfd_create"] = _MEMFD_NOEXEC
    return rules


def _ranges(
    level: FilterLevel, on: Machine, shares_user: bool, runs_memory_files: bool
) -> list[tuple[int, bpf.Code]]:
    """Every call number, as ranges of equal treatment in rising order."""
    by_number: dict[int, bpf.Code] = {}
    for name, code in _rules(level, shares_user, runs_memory_files).items():
        if (found := lookup(name, on)) is not None:
            by_number[found] = code
    ranges: list[tuple[int, bpf.Code]] = [(0, _allow)]
    for at in range(HIGHEST + 1):
        code = by_number.get(at, _allow)
        if code != ranges[-1][1]:
            ranges.append((at, code))
    unknown = bpf.give(refuse(errno.ENOSYS))
    return [*ranges, (HIGHEST + 1, unknown)]


def program(
    level: FilterLevel, on: Machine, *, shares_user: bool = False, runs_memory_files: bool = True
) -> bytes:
    """The filter of a level, as the kernel reads it.

    shares_user: whether processes and files outside the jail that it can name belong to the jail's own user.
    runs_memory_files: whether a memory file can be executed; else it must be made so that it cannot.
    """
    assert level in get_args(FilterLevel)
    kill = bpf.give(KILL_PROCESS)
    right_arch = (
        *bpf.load(_NUMBER_OFFSET),
        *bpf.when(bpf.JUMP_IF_AT_LEAST, _X32_BIT, kill),
        *bpf.search(_ranges(level, on, shares_user, runs_memory_files)),
    )
    return bpf.assemble(
        (*bpf.load(_ARCH_OFFSET), *bpf.when(bpf.JUMP_IF_EQUAL, AUDIT_ARCH[on], right_arch), *kill)
    )
