"""The filter's verdict on every call, as a pure function and in a real process."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.walls.bpf_machine import run

from cenote_security.walls import seccomp
from cenote_security.walls.identity import forbid_new_privileges
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.kernel import syscalls
from cenote_security.walls.seccomp import ALLOW, AUDIT_ARCH, KILL_PROCESS, refuse

MACHINES: tuple[syscalls.Machine, ...] = ("x86_64", "aarch64")
EPERM = refuse(errno.EPERM)
ENOSYS = refuse(errno.ENOSYS)
EINVAL = refuse(errno.EINVAL)
ENOMEM = refuse(errno.ENOMEM)
NO_FAMILY = refuse(errno.EAFNOSUPPORT)
NOTHING_DONE = refuse(0)
STREAM = 1

# Calls that FIELD-tested sandboxes deny, listed again, so that a name lost from the filter is noticed.
FORBIDDEN = (
    "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd bpf perf_event_open userfaultfd keyctl add_key "
    "request_key unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsmount fsconfig fspick "
    "mount_setattr open_by_handle_at name_to_handle_at kexec_load kexec_file_load init_module finit_module "
    "delete_module reboot swapon swapoff acct quotactl settimeofday clock_settime adjtimex lookup_dcookie shmget "
    "semget msgget syslog seccomp fanotify_init"
)
X86_RELICS = "iopl ioperm modify_ldt"
ABSENT = (
    "clone3 io_uring_setup io_uring_enter io_uring_register io_setup io_destroy io_submit io_cancel io_getevents "
    "io_pgetevents"
)
# Read and write, threads, memory, processes, own files: calls that every library makes.
ORDINARY = {
    "x86_64": (0, 1, 9, 10, 11, 39, 56, 57, 59, 61, 62, 202, 231, 257, 319),
    "aarch64": (63, 64, 93, 98, 222),
}
# Calls that programs make by the thousand: reads and writes, opens and stats, memory, locks, messages, removals, the
# clock.
# Not among them, because of one argument: mmap and fcntl.
FREQUENT = {
    "x86_64": (0, 1, 3, 4, 5, 7, 8, 11, 12, 14, 17, 18, 24, 39, 46, 47, 87, 202, 217, 228, 257, 262, 263, 332),
    "aarch64": (35, 56, 57, 61, 62, 63, 64, 67, 68, 79, 80, 98, 113, 124, 135, 172, 211, 212, 214, 215, 291),
}  # fmt: skip


def judge(
    level: seccomp.FilterLevel, on: syscalls.Machine, name: str, *arguments: int, **options: bool
) -> int:
    number = syscalls.lookup(name, on)
    assert number is not None
    return run(seccomp.program(level, on, **options), number, AUDIT_ARCH[on], arguments)


@pytest.mark.parametrize("on", MACHINES)
@pytest.mark.parametrize("level", ["strict", "landlock"])
def test_dangerous_calls_are_refused(level: seccomp.FilterLevel, on: syscalls.Machine) -> None:
    """With any arguments; calls that libraries probe return "not implemented"."""
    names = [*FORBIDDEN.split(), *(X86_RELICS.split() if on == "x86_64" else ())]
    assert {} == {name: got for name in names if (got := judge(level, on, name)) != EPERM}
    assert {} == {name: got for name in ABSENT.split() if (got := judge(level, on, name)) != ENOSYS}


@given(
    number=st.integers(0, 2**30 - 1),
    level=st.sampled_from(["strict", "landlock"]),
    on=st.sampled_from(MACHINES),
)
def test_calls_newer_than_the_tables_do_not_exist(
    number: int, level: seccomp.FilterLevel, on: syscalls.Machine
) -> None:
    """A call that has not been reviewed is not allowed by default."""
    got = run(seccomp.program(level, on), number, AUDIT_ARCH[on])
    verdicts = (ALLOW, EPERM, ENOSYS, NO_FAMILY, NOTHING_DONE)
    assert (got == ENOSYS) if number > syscalls.HIGHEST else (got in verdicts)


@pytest.mark.parametrize("on", MACHINES)
def test_ordinary_calls_are_allowed(on: syscalls.Machine) -> None:
    """The filter is no allow list."""
    program = seccomp.program("strict", on)
    assert {ALLOW} == {run(program, number, AUDIT_ARCH[on]) for number in ORDINARY[on]}


@pytest.mark.parametrize("on", MACHINES)
@pytest.mark.parametrize("level", ["strict", "landlock"])
def test_calls_that_programs_make_most_are_judged_by_number_alone(
    level: seccomp.FilterLevel, on: syscalls.Machine
) -> None:
    """The kernel runs no filter for a call whose number always means `allow`: 30 ns of its cost remain."""
    program = seccomp.program(level, on)
    assert {ALLOW} == {run(program, number, AUDIT_ARCH[on], None) for number in FREQUENT[on]}


@given(number=st.integers(0, 2**32 - 1), arch=st.integers(0, 2**32 - 1))
def test_foreign_architectures_and_x32_are_killed(number: int, arch: int) -> None:
    """Through another architecture's table, or with the x32 bit, the numbers mean other calls."""
    program = seccomp.program("strict", "x86_64")
    if arch != AUDIT_ARCH["x86_64"]:
        assert KILL_PROCESS == run(program, number, arch)
    assert KILL_PROCESS == run(program, number | 0x4000_0000, AUDIT_ARCH["x86_64"])


@pytest.mark.parametrize(
    "flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
)
def test_clone_makes_no_namespace(flag: int) -> None:
    """Each of the seven, alone or among the flags of an ordinary thread, with any upper half."""
    thread = 0x3D0F00
    assert ALLOW == judge("strict", "x86_64", "clone", thread)
    for flags in (flag, flag | thread, flag | 1 << 40):
        assert EPERM == judge("strict", "x86_64", "clone", flags)


@given(family=st.integers(0, 2**32 - 1) | st.integers(0, 50))
def test_socket_families(family: int) -> None:
    """UNIX and internet sockets (in an empty network) at `strict`, none at `landlock`; pairs of UNIX only."""
    expected = ALLOW if family in (1, 2, 10) else NO_FAMILY
    assert expected == judge("strict", "x86_64", "socket", family, STREAM)
    assert NO_FAMILY == judge("landlock", "x86_64", "socket", family, STREAM)
    for level in ("strict", "landlock"):
        expected = ALLOW if family == 1 else NO_FAMILY
        assert expected == judge(level, "x86_64", "socketpair", family, STREAM)


@pytest.mark.parametrize("call", ["socket", "socketpair"])
@pytest.mark.parametrize("protocol", [1, 33, 132, 136, 255, 256, 262])
def test_socket_protocols(call: str, protocol: int) -> None:
    """ICMP, DCCP, SCTP, UDP-Lite, raw, SMC and MPTCP use the families of TCP: all are refused."""
    for family in (1, 2, 10):
        assert ALLOW != judge("strict", "x86_64", call, family, STREAM, protocol)


@pytest.mark.parametrize("kind", [0, 3, 4, 6, 10])
def test_socket_types(kind: int) -> None:
    """Raw, RDM, DCCP and packet sockets are refused, with any flags among the type."""
    for family in (1, 2, 10):
        assert EPERM == judge("strict", "x86_64", "socket", family, kind | 0o2000000)


@pytest.mark.parametrize("call", ["setxattr", "lsetxattr", "fsetxattr", "removexattr", "fremovexattr"])
def test_no_attributes_are_left_on_files(call: str) -> None:
    """Without a private root a jail could leave bytes on any host file that all can write: Landlock allows it."""
    assert EPERM == judge("landlock", "x86_64", call)


def test_without_a_network_namespace_no_peer_can_be_named() -> None:
    """At `landlock` there are connected pairs only, and no datagram ones: those could send elsewhere."""
    datagram, seqpacket, cloexec = 2, 5, 0o2000000
    assert ALLOW == judge("landlock", "x86_64", "socketpair", 1, STREAM | cloexec)
    assert ALLOW == judge("landlock", "x86_64", "socketpair", 1, seqpacket)
    assert EPERM == judge("landlock", "x86_64", "socketpair", 1, datagram | cloexec)
    assert EPERM == judge("landlock", "x86_64", "connect")
    assert ALLOW == judge("strict", "x86_64", "connect")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [((15,), ALLOW), ((38, 1), ALLOW), ((4, 1), ALLOW), ((4, 0), EPERM), ((4, 2), EPERM), ((22, 2), EPERM),
     ((28, 0), EPERM), ((0x59616D61, 1), EPERM), ((35, 1), EPERM), ((36, 1), EPERM)],
)  # fmt: skip
def test_prctl_changes_nothing_that_matters(arguments: tuple[int, ...], expected: int) -> None:
    """A process may name itself; it may not become undumpable, choose a tracer or change its securebits."""
    assert expected == judge("strict", "x86_64", "prctl", *arguments)


@pytest.mark.parametrize(("command", "expected"), [(0x5412, EPERM), (0x541C, EPERM), (0x5401, ALLOW)])
def test_no_input_is_put_into_a_terminal(command: int, expected: int) -> None:
    """TIOCSTI and TIOCLINUX are refused, with any upper half, which the kernel ignores too."""
    assert expected == judge("strict", "x86_64", "ioctl", 0, command)
    assert expected == judge("strict", "x86_64", "ioctl", 0, command | 1 << 32)


@pytest.mark.parametrize("name", ["prlimit64", "sched_setaffinity", "sched_setscheduler"])
def test_no_process_is_aimed_at_by_number(name: str) -> None:
    """A process may use them on itself; by a number it could name its warden or its user's programs."""
    assert (ALLOW, EPERM) == (judge("strict", "x86_64", name, 0), judge("strict", "x86_64", name, 1))


@pytest.mark.parametrize("level", ["strict", "landlock"])
def test_no_socket_lingers(level: seccomp.FilterLevel) -> None:
    """The last process that closes it would wait, maybe the supervisor: other options and levels are allowed."""
    sol_socket, keep_alive, linger, tcp = 1, 9, 13, 6
    assert EPERM == judge(level, "x86_64", "setsockopt", 3, sol_socket, linger)
    assert EPERM == judge(level, "aarch64", "setsockopt", 3, sol_socket | 1 << 32, linger | 1 << 32)
    assert ALLOW == judge(level, "x86_64", "setsockopt", 3, sol_socket, keep_alive)
    assert ALLOW == judge(level, "x86_64", "setsockopt", 3, tcp, linger)


@pytest.mark.parametrize("on", MACHINES)
@pytest.mark.parametrize("command", [1024, 1026, 1040, 1039 + 2**10, 12, 2**31])
def test_no_file_of_others_is_leased(on: syscalls.Machine, command: int) -> None:
    """A lease, a delegation or a watch on a read-only file: other processes that open or change it wait.

    Additions of later kernels are refused as well, with any upper half, which the kernel ignores.
    """
    for level in ("strict", "landlock"):
        assert EINVAL == judge(level, on, "fcntl", 3, command)
        assert EINVAL == judge(level, on, "fcntl", 3, command | 1 << 32)


@pytest.mark.parametrize("name", [name for name in dir(fcntl) if name[:2] == "F_"])
def test_what_programs_do_with_descriptors(name: str) -> None:
    """All commands that Python knows, except the ones above; its other constants are no commands."""
    commands = {"F_RDLCK", "F_WRLCK", "F_UNLCK", "F_EXLCK", "F_SHLCK"}.isdisjoint({name})
    refused = name in ("F_SETLEASE", "F_NOTIFY") or name.startswith("F_SEAL")
    if commands and not refused:
        assert ALLOW == judge("strict", "x86_64", "fcntl", 3, getattr(fcntl, name))


@pytest.mark.parametrize("on", MACHINES)
@pytest.mark.parametrize("runs", [False, True])
def test_no_huge_pages_of_the_machine(on: syscalls.Machine, runs: bool) -> None:
    """With any other flags, of any size; private, shared and named memory stays allowed."""
    private, shared, huge, size = 0x22, 0x21, 0x40000, 21 << 26
    for kind in (private, shared):
        assert ALLOW == judge("strict", on, "mmap", 0, 4096, 3, kind, runs_memory_files=runs)
        assert ENOMEM == judge("strict", on, "mmap", 0, 4096, 3, kind | huge | size, runs_memory_files=runs)
    assert ALLOW == judge("strict", on, "memfd_create", 0, 0xB, runs_memory_files=runs)
    assert ENOMEM == judge("strict", on, "memfd_create", 0, 0x4 | 0xB | size, runs_memory_files=runs)


@pytest.mark.parametrize("call", ["sync", "syncfs"])
def test_nothing_of_the_machine_is_written_out(call: str) -> None:
    """The call reports success without effect: none of the program's files can be read afterwards."""
    for level in ("strict", "landlock"):
        assert NOTHING_DONE == judge(level, "x86_64", call, 3)


def test_no_instances_of_inotify_without_watches() -> None:
    """A user has 128 in total, and at `landlock` nothing can be watched."""
    for call in ("inotify_init", "inotify_init1"):
        assert ALLOW == judge("landlock", "x86_64", call)
        assert ALLOW == judge("strict", "x86_64", call, shares_user=True)
        assert ENOSYS == judge("landlock", "x86_64", call, shares_user=True)


def test_core_dumps_cannot_be_switched_on() -> None:
    """The limit can be read, not set: at 0 the kernel would call the host's handler. Other limits can be set."""
    core, files, pointer, high_pointer = 4, 7, 0x7000, 1 << 40
    assert ALLOW == judge("strict", "x86_64", "prlimit64", 0, core, 0)
    assert EPERM == judge("strict", "x86_64", "prlimit64", 0, core, pointer)
    assert EPERM == judge("strict", "x86_64", "prlimit64", 0, core, high_pointer)
    assert ALLOW == judge("strict", "x86_64", "prlimit64", 0, files, pointer)
    assert (EPERM, ALLOW) == (
        judge("strict", "x86_64", "setrlimit", core),
        judge("strict", "x86_64", "setrlimit", files),
    )


def test_priority_is_changed_of_oneself_only() -> None:
    """Only setpriority(PRIO_PROCESS, 0), and neither a number nor a group nor a user."""
    calls = [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert [ALLOW, EPERM, EPERM, EPERM] == [judge("strict", "x86_64", "setpriority", *call) for call in calls]


def test_anonymous_programs_are_not_executed() -> None:
    """execveat of an empty path is how a memory file without a name becomes a program."""
    assert (ALLOW, EPERM) == (
        judge("strict", "x86_64", "execveat", 3, 0, 0, 0, 0),
        judge("strict", "x86_64", "execveat", 3, 0, 0, 0, 0x1000),
    )


def test_metadata_is_fixed_where_the_user_is_shared() -> None:
    """Landlock does not stop chmod: run as the user who started it, a jail could reach the user's files."""
    assert ALLOW == judge("landlock", "x86_64", "fchmodat")
    assert EPERM == judge("landlock", "x86_64", "fchmodat", shares_user=True)


@pytest.mark.parametrize(
    ("flags", "expected"), [(0, False), (0x3, False), (0x10, False), (0x8, True), (0xB, True)]
)
@pytest.mark.parametrize("level", ["strict", "landlock"])
def test_with_noexec_memory_files_cannot_be_programs(
    level: seccomp.FilterLevel, flags: int, expected: bool
) -> None:
    """Only files sealed against execution are made (MFD_NOEXEC_SEAL, 8); without noexec, all are."""
    verdict = judge(level, "x86_64", "memfd_create", 0, flags, runs_memory_files=False)
    assert (ALLOW if expected else refuse(errno.EACCES)) == verdict
    assert ALLOW == judge(level, "x86_64", "memfd_create", 0, flags)


def test_the_kernel_takes_the_filter() -> None:
    """In a real process: refused calls fail with their errno, others still work."""
    program = libc.Filter(seccomp.program("strict", syscalls.machine()))
    child = os.fork()
    if child == 0:
        forbid_new_privileges()
        libc.install_filter(program)
        os._exit(_refusals())
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _refusals() -> int:
    """0, or the number of the first check that failed. Runs under the filter, where pytest can't help."""
    checks = (
        (lambda: libc.unshare(0), errno.EPERM),
        (lambda: libc.prctl(libc.PR_SET_DUMPABLE, 0), errno.EPERM),
        (lambda: libc.umount("/nowhere"), errno.EPERM),
        (lambda: os.stat("/nowhere"), errno.ENOENT),
    )
    for number, (call, expected) in enumerate(checks, start=1):
        try:
            call()
        except OSError as error:
            if error.errno == expected:
                continue
        return number
    return 0


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the 32-bit table is x86's")
def test_the_kernel_kills_a_call_through_the_32_bit_table() -> None:
    """`int 0x80` in a 64-bit process enters through the i386 table, where 20 is getpid, not writev."""
    program = libc.Filter(seccomp.program("strict", "x86_64"))
    child = os.fork()
    if child == 0:
        forbid_new_privileges()
        libc.install_filter(program)
        _getpid_through_32_bit_table()
        os._exit(0)
    assert -31 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])  # SIGSYS


def _getpid_through_32_bit_table() -> None:
    import ctypes
    import mmap

    code = bytes.fromhex("b814000000cd80c3")  # mov eax, 20; int 0x80; ret
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ctypes.CFUNCTYPE(ctypes.c_int)(address)()
