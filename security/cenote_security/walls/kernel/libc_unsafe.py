"""The system calls that Python has no name for. Each raises OSError with the call as its `filename`.

Thin on purpose: no decisions here, one function per call, arguments in the kernel's order.
`os` has some of these since 3.12 or 3.13; one set that works on 3.11 too is easier to trust than two.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import mmap
import os
import signal
from collections.abc import Iterable
from functools import cache
from types import ModuleType

from cenote_security.walls.kernel.syscalls import machine, number

# A jail calls these after cells, which may have replaced builtins: see cenote_worker.process.pristine.
__builtins__ = ModuleType("builtins")
vars(__builtins__).update(vars(builtins))

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter lock during the call
# Looked up now: ctypes does that with builtins that a cell may have replaced by the time of the first call.
for _library, _functions in (
    (_libc, ("syscall unshare mount umount2 prctl madvise mmap munmap malloc realloc free sbrk "
             "timerfd_create timerfd_settime sigaction inotify_init1 inotify_add_watch")),
    (_python, "fork syscall"),
):  # fmt: skip
    for _name in _functions.split():
        getattr(_library, _name)
_ulong = ctypes.c_ulong

AT_FDCWD = -100
AT_RECURSIVE = 0x8000
_IOLBF = 1


def _check(result: int, call: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), call)
    return result


def _syscall(name: str, call: str, *arguments: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number(name)), *arguments), call)


def write_whole_lines() -> None:
    """What C code prints leaves the process at each line's end, as on a terminal, wherever it goes."""
    _libc.setvbuf(ctypes.c_void_p.in_dll(_libc, "stdout"), None, _IOLBF, ctypes.c_size_t(0))


# -- namespaces and mounts --------------------------------------------------------------------------------

CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000

MNT_DETACH = 0x2

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
MOUNT_ATTR_NOEXEC = 0x8

OPEN_TREE_CLONE = 0x1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 0x4


def _path(path: str) -> bytes:
    return path.encode(errors="surrogateescape")


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str = "") -> None:
    arguments = (
        _path(source),
        _path(target),
        kind and kind.encode(),
        _ulong(flags),
        data.encode(),
    )
    _check(_libc.mount(*arguments), f"mount {kind or source} on {target}")


def umount(target: str, flags: int = 0) -> None:
    _check(_libc.umount2(_path(target), ctypes.c_int(flags)), f"umount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    _syscall("pivot_root", f"pivot_root {new_root}", _path(new_root), _path(put_old))


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def mount_setattr(target: str, set_flags: int) -> None:
    """Set attributes of a mount and of all mounts below it, or of none of them."""
    attr = _MountAttr(attr_set=set_flags)
    _syscall(
        "mount_setattr",
        f"mount_setattr {target}",
        ctypes.c_int(AT_FDCWD),
        _path(target),
        ctypes.c_uint(AT_RECURSIVE),
        ctypes.byref(attr),
        ctypes.c_size_t(ctypes.sizeof(attr)),
    )


def open_tree(path: str) -> int:
    """A descriptor for a detached, recursive copy of the mounts at `path`."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE
    return _syscall(
        "open_tree", f"open_tree {path}", ctypes.c_int(AT_FDCWD), _path(path), ctypes.c_uint(flags)
    )


def move_mount(tree: int, target: str) -> None:
    """Attach a tree that `open_tree` gave at `target`."""
    _syscall(
        "move_mount",
        f"move_mount to {target}",
        ctypes.c_int(tree),
        b"",
        ctypes.c_int(AT_FDCWD),
        _path(target),
        ctypes.c_uint(MOVE_MOUNT_F_EMPTY_PATH),
    )


# -- processes --------------------------------------------------------------------------------------------

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_NAME = 15
PR_GET_NAME = 16
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_GET_TID_ADDRESS = 40
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4


def bare_fork() -> int:
    """The C library's fork, without what Python runs before and after one. For single-threaded processes only.

    `os.fork` renews, in the child, locks that other threads may have held. With one thread there is nothing to
    renew, and in a large interpreter those handlers dirty most of a megabyte, which each jail would own for its life.
    What else they do, new random state above all, the child must do itself.
    """
    return _check(_python.fork(), "fork")


_CLONE_PARENT = 0x8000
_CLONE_CHILD_CLEARTID = 0x20_0000
_CLONE_CHILD_SETTID = 0x100_0000


def sibling_fork() -> int:
    """`bare_fork`, but the new process is the parent's child: its end is nothing that this one could wait for.

    Nothing of the C library's own fork happens beyond the thread's number, which is put where that would put it:
    `abort` signals the thread of that number. No handler of `pthread_atfork` runs.
    """
    thread_number = ctypes.c_ulong(0)
    _check(_libc.prctl(PR_GET_TID_ADDRESS, ctypes.byref(thread_number), 0, 0, 0), "prctl(PR_GET_TID_ADDRESS)")
    flags = _ulong(_CLONE_PARENT | _CLONE_CHILD_CLEARTID | _CLONE_CHILD_SETTID | signal.SIGCHLD)
    place, no_storage = thread_number, _ulong(0)
    last = (place, no_storage) if machine() == "x86_64" else (no_storage, place)
    return _check(
        _python.syscall(ctypes.c_long(number("clone")), flags, _ulong(0), _ulong(0), *last), "clone"
    )


def prctl(option: int, argument: int | bytes = 0) -> int:
    value = argument if isinstance(argument, bytes) else _ulong(argument)
    result: int = _libc.prctl(ctypes.c_int(option), value, _ulong(0), _ulong(0), _ulong(0))
    return _check(result, f"prctl({option}, {argument!r})")


_ProcessName = ctypes.c_char * 16
# Not by `create_string_buffer`, which uses builtins that a cell may have replaced.


def process_name() -> bytes:
    """The name of the calling thread; a process's is its first thread's."""
    name = _ProcessName()
    _check(
        _libc.prctl(ctypes.c_int(PR_GET_NAME), name, _ulong(0), _ulong(0), _ulong(0)), "prctl(PR_GET_NAME)"
    )
    return name.value


_SA_RESTART = 0x1000_0000


class _SignalAction(ctypes.Structure):
    """`struct sigaction` of glibc and musl on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def restarts_calls(number: int) -> bool:
    """Whether system calls go on after a handler of this signal: what `signal.siginterrupt` sets to the contrary."""
    action = _SignalAction()
    _check(_libc.sigaction(ctypes.c_int(number), None, ctypes.byref(action)), f"sigaction({number})")
    return bool(action.flags & _SA_RESTART)


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


_CAPABILITY_VERSION_3 = 0x2008_0522


CAP_KILL = 5
CAP_SETGID = 6
CAP_SETUID = 7
CAP_CHECKPOINT_RESTORE = 40
"""Since Linux 5.9. In its own pid namespace: which number the next process has."""


def set_capabilities(permitted: Iterable[int] = (), effective: Iterable[int] = ()) -> None:
    """Set these sets of the calling thread and empty the inheritable one."""
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    permitted = tuple(permitted)
    sets = [sum(1 << one for one in each) for each in (effective, permitted)]
    words = [word & 0xFFFF_FFFF for shift in (0, 32) for word in (*(each >> shift for each in sets), 0)]
    call = f"capset to {sorted(permitted)}"
    _syscall("capset", call, ctypes.byref(header), (ctypes.c_uint32 * 6)(*words))


HIGHEST_DESCRIPTOR = 0x7FFF_FFFF
"""Linux takes larger numbers for a range's end, gVisor does not; no descriptor has one."""


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    _syscall(
        "close_range",
        f"close_range from {first}",
        ctypes.c_uint(first),
        ctypes.c_uint(HIGHEST_DESCRIPTOR),
        ctypes.c_uint(0),
    )


def userfaultfd(flags: int) -> int:
    """A descriptor for handling this process's page faults."""
    return _syscall("userfaultfd", "userfaultfd", ctypes.c_int(flags))


# -- notices of files -------------------------------------------------------------------------------------


def inotify_init1(flags: int) -> int:
    return _check(_libc.inotify_init1(ctypes.c_int(flags)), "inotify_init1")


def inotify_add_watch(descriptor: int, path: str, mask: int) -> int:
    """The number of the watch in this instance."""
    watch = _libc.inotify_add_watch(ctypes.c_int(descriptor), _path(path), ctypes.c_uint32(mask))
    return _check(watch, f"inotify_add_watch {path}")


# -- memory -----------------------------------------------------------------------------------------------

MADV_DONTFORK = 10
MADV_DOFORK = 11
MADV_COLLAPSE = 25

_MAP_FIXED = 0x10
_MAP_FIXED_NOREPLACE = 0x10_0000


def pidfd_getfd(pidfd: int, number: int) -> int:
    """A descriptor of what another process has open under that number; for who may trace it."""
    return _syscall("pidfd_getfd", "pidfd_getfd", ctypes.c_int(pidfd), ctypes.c_int(number), ctypes.c_uint(0))


def madvise(start: int, size: int, advice: int) -> None:
    """start: the address of a page of this process."""
    _check(_libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.c_int(advice)), "madvise")


_MAP_FAILED = ctypes.c_void_p(-1).value
_libc.mmap.restype = ctypes.c_void_p


def map_over(start: int, size: int, file: int, offset: int) -> None:
    """Bytes of a file take the place of this process's memory there: private to it, to be read and written.

    start, offset: on pages. What was there is gone.
    """
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
    place, length = ctypes.c_void_p(start), ctypes.c_size_t(size)
    found = _libc.mmap(place, length, access, flags, ctypes.c_int(file), ctypes.c_long(offset))
    _check(-1 if found == _MAP_FAILED else 0, "mmap")


def map_zeros(start: int, size: int) -> None:
    """Memory of this process's own where nothing is mapped. start: on a page. Raises OSError if something is."""
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    place, length = ctypes.c_void_p(start), ctypes.c_size_t(size)
    found = _libc.mmap(
        place, length, access, flags | _MAP_FIXED_NOREPLACE, ctypes.c_int(-1), ctypes.c_long(0)
    )
    _check(-1 if found == _MAP_FAILED else 0, "mmap")
    if found != start:  # a kernel from before 4.17, which takes the place for a wish
        _libc.munmap(ctypes.c_void_p(found), length)
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), "mmap")


_libc.malloc.restype = _libc.realloc.restype = _libc.sbrk.restype = ctypes.c_void_p


def allocate(size: int) -> int:
    """The address of memory of the C library's heap; 0 where there is none."""
    return _libc.malloc(ctypes.c_size_t(size)) or 0


def resize(address: int, size: int) -> int:
    """The new address of an allocation; 0 when there is no memory, and the allocation is unchanged."""
    return _libc.realloc(ctypes.c_void_p(address), ctypes.c_size_t(size)) or 0


def release(address: int) -> None:
    """Gives back what was allocated."""
    _libc.free(ctypes.c_void_p(address))


def word_at(address: int) -> int:
    """What lies there: eight bytes, as a number. The process ends where nothing does."""
    return ctypes.c_uint64.from_address(address).value


def heap_end() -> int:
    """The end address of the memory that the C library makes smaller allocations in."""
    return _libc.sbrk(ctypes.c_ssize_t(0)) or 0


# -- timers -----------------------------------------------------------------------------------------------

_CLOCK_MONOTONIC = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def timerfd() -> int:
    """A descriptor that becomes readable as `set_timer` says. It does not block, and is shared by forks."""
    flags = os.O_NONBLOCK | os.O_CLOEXEC
    return _check(_libc.timerfd_create(ctypes.c_int(_CLOCK_MONOTONIC), ctypes.c_int(flags)), "timerfd_create")


def set_timer(timer: int, first: int, every: int) -> None:
    """first, every: nanoseconds, below a second; 0 and 0 for never."""
    _check(_libc.timerfd_settime(timer, 0, _itimerspec(first, every), None), "timerfd_settime")


@cache
def _itimerspec(first: int, every: int) -> object:
    """Made once for each pair: callers have few."""
    return ctypes.byref(_Itimerspec(_Timespec(0, every), _Timespec(0, first)))


# -- seccomp ----------------------------------------------------------------------------------------------

_SECCOMP_SET_MODE_FILTER = 1


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Filter:
    """A seccomp filter (packed `struct sock_filter`s) in the form that the kernel takes, made once for many jails."""

    def __init__(self, program: bytes) -> None:
        self._instructions = ctypes.create_string_buffer(program, len(program))
        self._program = _SockFprog(len(program) // 8, ctypes.addressof(self._instructions))
        self.reference = ctypes.byref(self._program)


def install_filter(program: Filter) -> None:
    """Install a filter for this process. There is no way back."""
    mode, flags = ctypes.c_uint(_SECCOMP_SET_MODE_FILTER), ctypes.c_uint(0)
    _syscall("seccomp", "seccomp(SET_MODE_FILTER)", mode, flags, program.reference)


# -- Landlock ---------------------------------------------------------------------------------------------

LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_CREATE_RULESET_ERRATA = 2
_LANDLOCK_RULE_PATH_BENEATH = 1
_LANDLOCK_RULE_NET_PORT = 2


class _LandlockRulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _LandlockPathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _LandlockNetPort(ctypes.Structure):
    _fields_ = (("allowed_access", ctypes.c_uint64), ("port", ctypes.c_uint64))


def landlock_query(flag: int) -> int:
    """The kernel's Landlock ABI, or its mask of fixed errata, according to `flag`."""
    null = ctypes.c_void_p(None)
    return _syscall(
        "landlock_create_ruleset", "landlock_create_ruleset", null, ctypes.c_size_t(0), ctypes.c_uint(flag)
    )


def landlock_create_ruleset(filesystem: int, network: int, scoped: int) -> int:
    """A ruleset descriptor. Sets that the kernel does not know must be 0: only those needed are passed."""
    attr = _LandlockRulesetAttr(filesystem, network, scoped)
    size = 24 if scoped else 16 if network else 8
    return _syscall(
        "landlock_create_ruleset",
        "landlock_create_ruleset",
        ctypes.byref(attr),
        ctypes.c_size_t(size),
        ctypes.c_uint(0),
    )


def landlock_allow_beneath(ruleset: int, descriptor: int, access: int) -> None:
    rule = _LandlockPathBeneath(access, descriptor)
    _syscall(
        "landlock_add_rule",
        "landlock_add_rule",
        ctypes.c_int(ruleset),
        ctypes.c_int(_LANDLOCK_RULE_PATH_BENEATH),
        ctypes.byref(rule),
        ctypes.c_uint(0),
    )


def landlock_allow_port(ruleset: int, port: int, access: int) -> None:
    rule = _LandlockNetPort(access, port)
    _syscall(
        "landlock_add_rule",
        "landlock_add_rule",
        ctypes.c_int(ruleset),
        ctypes.c_int(_LANDLOCK_RULE_NET_PORT),
        ctypes.byref(rule),
        ctypes.c_uint(0),
    )


def landlock_restrict_self(ruleset: int) -> None:
    _syscall("landlock_restrict_self", "landlock_restrict_self", ctypes.c_int(ruleset), ctypes.c_uint(0))
