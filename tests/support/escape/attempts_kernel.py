"""Attempts on the kernel: namespaces, mounts, rarely used calls, foreign call tables, privileges."""

# ruff: noqa: SIM115  (an attempt ends at once, and its crude ways are the point)

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import shutil
import struct
import subprocess
import sys
import time

from cenote_security.attacks.escape_attempt import Family
from cenote_security.attacks.inside_unsafe import World, call, first_success, in_child, machine_code

NAMESPACES = Family("namespaces")
MOUNTS = Family("mounts")
DOORS = Family("kernel doors")
PRIVILEGES = Family("privileges")
_SHUT = ("EPERM", "EACCES", "ENOENT")

# -- namespaces -------------------------------------------------------------------------------------------


@NAMESPACES.attempt("unshare(CLONE_NEWNS), CVE-2022-0185", "EPERM")
def make_a_mount_namespace(world: World) -> object:
    return call("unshare", 0x20000)


@NAMESPACES.attempt("unshare(CLONE_NEWPID)", "EPERM")
def make_a_pid_namespace(world: World) -> object:
    return call("unshare", 0x20000000)


@NAMESPACES.attempt("unshare(CLONE_NEWNET), CVE-2023-32233 (nf_tables)", "EPERM")
def make_a_network_namespace(world: World) -> object:
    return call("unshare", 0x40000000)


@NAMESPACES.attempt("unshare(CLONE_NEWIPC)", "EPERM")
def make_an_ipc_namespace(world: World) -> object:
    return call("unshare", 0x8000000)


@NAMESPACES.attempt("unshare(CLONE_NEWUTS)", "EPERM")
def make_a_name_namespace(world: World) -> object:
    return call("unshare", 0x4000000)


@NAMESPACES.attempt("unshare(CLONE_NEWCGROUP), CVE-2022-0492", "EPERM")
def make_a_cgroup_namespace(world: World) -> object:
    return call("unshare", 0x2000000)


@NAMESPACES.attempt("unshare(CLONE_NEWTIME)", "EPERM")
def make_a_time_namespace(world: World) -> object:
    return call("unshare", 0x80)


@NAMESPACES.attempt("clone(CLONE_NEWUSER), CVE-2013-1858", "EPERM")
def clone_into_a_namespace(world: World) -> object:
    return call("clone", 0x10000000 | 0x20000 | 17, 0, 0, 0, 0)


@NAMESPACES.attempt("clone with flags in the upper half", "EPERM")
def clone_with_an_upper_half(world: World) -> object:
    return call("clone", (1 << 40) | 0x10000000 | 17, 0, 0, 0, 0)


@NAMESPACES.attempt("setns to another process's namespaces", "EPERM", "ENOENT", "EACCES", "ESRCH")
def join_a_namespace(world: World) -> object:
    pids = (1, os.getppid(), world.client)
    by_file = [lambda pid=pid: call("setns", os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), 0) for pid in pids]
    by_pidfd = [lambda pid=pid: call("setns", os.pidfd_open(pid), 0x20000) for pid in pids]
    return first_success(*by_file, *by_pidfd)


@NAMESPACES.attempt("namespaces by ioctl: NS_GET_PARENT, NS_GET_USERNS", "EPERM", "EACCES", "ENOTTY")
def ask_for_the_parent_namespace(world: World) -> object:
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    parent = fcntl.ioctl(own, 0xB702)
    return call("setns", parent, 0)


@NAMESPACES.attempt("listns", "EPERM", "ENOSYS")
def list_namespaces(world: World) -> object:
    return call("listns", ctypes.create_string_buffer(64), ctypes.create_string_buffer(64), 8, 0)


# -- mounts -----------------------------------------------------------------------------------------------


@MOUNTS.attempt("mount(2): tmpfs, proc, a bind of the root", "EPERM")
def mount_something(world: World) -> object:
    return first_success(
        lambda: call("mount", b"x", b"/tmp", b"tmpfs", 0, 0),
        lambda: call("mount", b"x", b"/tmp", b"proc", 0, 0),
        lambda: call("mount", b"/", b"/tmp", 0, 0x1000, 0),
        lambda: call("mount", b"/dev/vda", b"/tmp", b"ext4", 0, 0),
    )


@MOUNTS.attempt("remounting the root for writing", "EPERM")
def remount_the_root(world: World) -> object:
    return call("mount", b"none", b"/", 0, 0x20 | 0x1000, 0)


@MOUNTS.attempt("umount of what covers something", "EPERM")
def unmount(world: World) -> object:
    return first_success(
        *(lambda path=path: call("umount2", path, 2) for path in (b"/proc", b"/tmp", b"/dev/null", b"/"))
    )


@MOUNTS.attempt("overlayfs, CVE-2023-0386 and CVE-2021-3493", "EPERM")
def mount_an_overlay(world: World) -> object:
    return call("mount", b"overlay", b"/tmp", b"overlay", 0, b"lowerdir=/usr,upperdir=/tmp/u,workdir=/tmp/w")


@MOUNTS.attempt("open_tree and move_mount", "EPERM")
def move_a_mount(world: World) -> object:
    return first_success(
        lambda: call("open_tree", -100, b"/", 1), lambda: call("move_mount", -100, b"/usr", -100, b"/tmp", 0)
    )


@MOUNTS.attempt("mount_setattr: read-only no more", "EPERM")
def change_a_mount(world: World) -> object:
    attributes = ctypes.create_string_buffer(
        (0).to_bytes(8, "little") + (1).to_bytes(8, "little") + bytes(16)
    )
    return call("mount_setattr", -100, b"/", 0x8000, attributes, 32)


@MOUNTS.attempt("statmount and listmount", "EPERM", "ENOSYS")
def list_mounts(world: World) -> object:
    out = ctypes.create_string_buffer(512)
    return first_success(
        lambda: call("listmount", out, out, 8, 0), lambda: call("statmount", out, out, 512, 0)
    )


@MOUNTS.attempt("pivot_root", "EPERM")
def pivot(world: World) -> object:
    return call("pivot_root", b"/tmp", b"/tmp")


@MOUNTS.attempt("chroot and a way out of it", "EPERM")
def change_root(world: World) -> object:
    os.makedirs("newroot", exist_ok=True)
    return os.chroot("newroot")


# -- calls that data work never uses ----------------------------------------------------------------------


@DOORS.attempt("userfaultfd, which makes races of kernel exploits certain", *_SHUT)
def handle_own_page_faults(world: World) -> object:
    return first_success(lambda: call("userfaultfd", 1), lambda: os.open("/dev/userfaultfd", os.O_RDWR))


@DOORS.attempt("vmsplice, CVE-2008-0600", "EPERM")
def splice_memory(world: World) -> object:
    return call("vmsplice", os.pipe()[1], ctypes.create_string_buffer(16), 1, 0)


@DOORS.attempt("kernel modules", "EPERM")
def load_a_module(world: World) -> object:
    return first_success(
        lambda: call("init_module", b"", 0, b""),
        lambda: call("finit_module", 0, b"", 0),
        lambda: call("delete_module", b"ext4", 0),
    )


@DOORS.attempt("kexec and reboot", "EPERM")
def boot_something_else(world: World) -> object:
    return first_success(
        lambda: call("kexec_load", 0, 0, 0, 0),
        lambda: call("kexec_file_load", -1, -1, 0, 0, 0),
        lambda: call("reboot", 0xFEE1DEAD, 672274793, 0, 0),
    )


@DOORS.attempt("the clock of the machine", "EPERM")
def set_the_clock(world: World) -> object:
    timex = ctypes.create_string_buffer((1).to_bytes(8, "little") + bytes(300))
    return first_success(
        lambda: call("clock_settime", 0, ctypes.create_string_buffer(16)),
        lambda: call("settimeofday", ctypes.create_string_buffer(16), 0),
        lambda: call("clock_adjtime", 0, timex),
        lambda: call("adjtimex", timex),
    )


@DOORS.attempt("host and domain name", "EPERM")
def rename_the_machine(world: World) -> object:
    return first_success(lambda: call("sethostname", b"evil", 4), lambda: call("setdomainname", b"evil", 4))


@DOORS.attempt("swap, accounting, quotas", "EPERM")
def manage_storage(world: World) -> object:
    return first_success(
        lambda: call("swapon", b"/tmp/swap", 0),
        lambda: call("swapoff", b"/dev/vda"),
        lambda: call("acct", b"/tmp/log"),
        lambda: call("quotactl", 0x800002 << 8, b"/dev/vda", 0, 0),
        lambda: call("quotactl_fd", 0, 0, 0, 0),
    )


@DOORS.attempt(
    "ports and segments of the processor: iopl, ioperm, modify_ldt (CVE-2017-17053)",
    "EPERM",
    machine="x86_64",
)
def reach_for_the_hardware(world: World) -> object:
    return first_success(
        lambda: call("iopl", 3),
        lambda: call("ioperm", 0, 1024, 1),
        lambda: call("modify_ldt", 1, ctypes.create_string_buffer(16), 16),
    )


@DOORS.attempt("the kernel's log", "EPERM")
def read_the_kernel_log(world: World) -> object:
    return call("syslog", 3, ctypes.create_string_buffer(4096), 4096)


@DOORS.attempt("cookies and security modules", "EPERM", "ENOSYS")
def use_lookup_dcookie(world: World) -> object:
    out = ctypes.create_string_buffer(64)
    return first_success(
        lambda: call("lookup_dcookie", 0, out, 64), lambda: call("lsm_list_modules", out, out, 0)
    )


@DOORS.attempt("System V shared memory, semaphores, queues (CVE-2021-22555's heap spray)", "EPERM")
def use_system_v_objects(world: World) -> object:
    return first_success(
        lambda: call("shmget", 0x1234, 4096, 0o1666),
        lambda: call("semget", 0x1234, 1, 0o1666),
        lambda: call("msgget", 0x1234, 0o1666),
    )


@DOORS.attempt("POSIX message queues, CVE-2017-11176", "EPERM")
def use_message_queues(world: World) -> object:
    return first_success(
        lambda: call("mq_open", b"cenote", 0o102, 0o666, 0),
        lambda: call("mq_notify", 0, ctypes.create_string_buffer(64)),
    )


@DOORS.attempt("secret memory, hidden from accounting", "ENOSYS")
def take_secret_memory(world: World) -> object:
    return call("memfd_secret", 0)


@DOORS.attempt("operations counted for the whole machine, fs.aio-max-nr", "ENOSYS")
def take_asynchronous_operations(world: World) -> object:
    return call("io_setup", 1, ctypes.byref(ctypes.c_ulong()))


@DOORS.attempt("a lease on a file that may only be read, F_SETLEASE", "EINVAL")
def lease_a_file(world: World) -> object:
    return fcntl.fcntl(os.open(__import__("json").__file__, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)


@DOORS.attempt("a delegation of a folder, F_SETDELEG (Linux 6.19)", "EINVAL")
def delegate_a_folder(world: World) -> object:
    return fcntl.fcntl(os.open("/usr", os.O_RDONLY), 1024 + 16, struct.pack("IHH", 0, fcntl.F_RDLCK, 0))


@DOORS.attempt("news of a folder of others, F_NOTIFY", "EINVAL")
def ask_for_news_of_a_folder(world: World) -> object:
    return fcntl.fcntl(os.open("/usr", os.O_RDONLY), fcntl.F_NOTIFY, 0x80000002)


@DOORS.attempt("huge pages of the machine, MAP_HUGETLB and MFD_HUGETLB", "ENOMEM")
def map_huge_pages_by_flag(world: World) -> object:
    return first_success(
        lambda: call("mmap", 0, 1 << 21, 3, 0x40022, -1, 0),
        lambda: call("memfd_create", b"x", 4),
    )


@DOORS.attempt("all that the machine has to write, sync and syncfs: nothing is done", "done")
def write_everything_out(world: World) -> object:
    began, folder = time.monotonic(), os.open(".", os.O_RDONLY)
    for _ in range(1000):
        call("sync")
        call("syncfs", folder)
    if time.monotonic() - began > 5:
        raise TimeoutError("it was done")
    return None


@DOORS.attempt("terminal input, TIOCSTI: CVE-2017-5226", "EPERM")
def type_into_a_terminal(world: World) -> object:
    return fcntl.ioctl(1, 0x5412, b"x")


@DOORS.attempt("console selection, TIOCLINUX: CVE-2023-28100", "EPERM")
def paste_into_a_console(world: World) -> object:
    return fcntl.ioctl(1, 0x541C, b"\x03")


@DOORS.attempt("line disciplines, CVE-2017-2636 (n_hdlc)", "EPERM")
def load_a_line_discipline(world: World) -> object:
    return fcntl.ioctl(1, 0x5423, (13).to_bytes(4, "little"))


@DOORS.attempt("the 32-bit call table, int 0x80: CVE-2009-0835", "SIGSYS", machine="x86_64")
def call_through_the_32_bit_table(world: World) -> object:
    in_child(machine_code(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"))  # mov eax, 20 (getpid there); int 0x80; ret
    return None


@DOORS.attempt("calls newer than the filter", "ENOSYS")
def make_a_call_of_the_future(world: World) -> object:
    return first_success(
        *(lambda n=n: call(n, 0, 0, 0) for n in (472, 480, 511, 512, 547, 600, 1000, 0x3FFFFFFF))
    )


@DOORS.attempt("quirks of a personality: no randomisation, executable reads", "EPERM")
def change_personality(world: World) -> object:
    return first_success(
        *(lambda n=n: call("personality", n) for n in (0x0040000, 0x0400000, 0x8, 1 << 32 | 0x0040000))
    )


# -- privileges -------------------------------------------------------------------------------------------


@PRIVILEGES.attempt("set-uid programs", "PermissionError", "CalledProcessError", "FileNotFoundError")
def run_a_set_uid_program(world: World) -> object:
    found = shutil.which("mount") or shutil.which("su") or "/bin/mount"
    return subprocess.check_output([found, "-t", "tmpfs", "x", "/tmp"], stderr=subprocess.STDOUT, timeout=10)


@PRIVILEGES.attempt("a set-uid program of one's own", "done", "EPERM", "EACCES")
def make_a_set_uid_program(world: World) -> object:
    shutil.copyfile("/bin/sh", "shell")
    os.chmod("shell", 0o6755)
    return subprocess.run(
        ["./shell", "-c", "id -u; grep -i cap /proc/self/status"], capture_output=True, text=True
    ).stdout


@PRIVILEGES.attempt(
    "a library preloaded into a set-uid program, CVE-2023-4911 (glibc tunables)", "done", "EACCES", "ENOENT"
)
def confuse_the_loader(world: World) -> object:
    environment = {
        "GLIBC_TUNABLES": "glibc.malloc.mxfast=glibc.malloc.mxfast=A" + "A" * 200,
        "LD_PRELOAD": "/tmp/x.so",
    }
    return subprocess.run(["/bin/su", "--help"], env=environment, capture_output=True).returncode


@PRIVILEGES.attempt("setuid(0), setgroups", "EINVAL", "EPERM")
def become_root(world: World) -> object:
    return first_success(
        lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0), lambda: os.setgroups([0])
    )


@PRIVILEGES.attempt("ambient capabilities", "EPERM")
def raise_ambient_capabilities(world: World) -> object:
    return call("prctl", 47, 2, 21, 0, 0)


@PRIVILEGES.attempt("securebits and keepcaps", "EPERM")
def change_securebits(world: World) -> object:
    return first_success(lambda: call("prctl", 28, 0, 0, 0, 0), lambda: call("prctl", 8, 1, 0, 0, 0))


@PRIVILEGES.attempt("no_new_privs switched off", "EINVAL", "EPERM")
def allow_new_privileges(world: World) -> object:
    return call("prctl", 38, 0, 0, 0, 0)


@PRIVILEGES.attempt("file capabilities", "EPERM", "ENOTSUP")
def give_a_file_capabilities(world: World) -> object:
    shutil.copyfile("/bin/sh", "capable")
    return os.setxattr("capable", "security.capability", b"\1\0\0\2" + b"\xff" * 16)


@PRIVILEGES.attempt("a seccomp listener of one's own", "EPERM")
def listen_to_own_calls(world: World) -> object:
    return call("seccomp", 1, 8, ctypes.create_string_buffer(16))


@PRIVILEGES.attempt("hiding from accounting: not dumpable", "EPERM")
def become_undumpable(world: World) -> object:
    return call("prctl", 4, 0, 0, 0, 0)


@PRIVILEGES.attempt("forging one's memory map, PR_SET_MM", "EPERM")
def forge_the_memory_map(world: World) -> object:
    return call("prctl", 35, 8, 0x10000, 0, 0)


@PRIVILEGES.attempt("system calls redirected, PR_SET_SYSCALL_USER_DISPATCH", "EPERM")
def redirect_system_calls(world: World) -> object:
    return call("prctl", 59, 1, 0, 0, 0)


@PRIVILEGES.attempt("core scheduling and speculation control", "EPERM")
def control_speculation(world: World) -> object:
    return first_success(lambda: call("prctl", 53, 0, 2, 0, 0), lambda: call("prctl", 62, 1, 0, 0, 0))


@PRIVILEGES.attempt("adopting orphans, PR_SET_CHILD_SUBREAPER", "EPERM")
def become_a_subreaper(world: World) -> object:
    return call("prctl", 36, 1, 0, 0, 0)


@PRIVILEGES.attempt("raising limits", "ValueError", "EPERM")
def raise_limits(world: World) -> object:
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return resource.setrlimit(resource.RLIMIT_NPROC, (hard + 1000, hard + 1000))


@PRIVILEGES.attempt("core dumps into the host's handler, CVE-2025-4598", "EPERM", "ValueError")
def switch_core_dumps_on(world: World) -> object:
    return first_success(
        lambda: resource.setrlimit(resource.RLIMIT_CORE, (1, 1)),
        lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )


@PRIVILEGES.attempt("a program in memory, memfd_create and execveat: stays in the jail", "EPERM")
def execute_a_nameless_file(world: World) -> object:
    memory = os.memfd_create("program", 0)
    os.write(memory, open("/bin/sh", "rb").read())
    return in_child(lambda: call("execveat", memory, b"", ctypes.create_string_buffer(16), 0, 0x1000))


@PRIVILEGES.attempt("a program in memory, run through /proc/self/fd: stays in the jail", "done", "EACCES")
def execute_memory_by_link(world: World) -> object:
    memory = os.memfd_create("program", 0)
    os.write(memory, open("/bin/sh", "rb").read())
    command = [f"/proc/{os.getpid()}/fd/{memory}", "-c", f"cat {world.secret}; kill -9 {world.bystander}"]
    return subprocess.run(command, pass_fds=[memory], capture_output=True).stdout


@PRIVILEGES.attempt("machine code in anonymous memory: stays in the jail", "done", "EACCES", machine="x86_64")
def run_machine_code(world: World) -> object:
    # mov eax, 62 (kill); mov edi, bystander; mov esi, 19 (SIGSTOP); syscall; ret
    code = b"\xb8\x3e\0\0\0\xbf" + world.bystander.to_bytes(4, "little") + b"\xbe\x13\0\0\0\x0f\x05\xc3"
    return errno.errorcode[-machine_code(code)()]


@PRIVILEGES.attempt("the loader as an interpreter, past a missing x bit", "done", "EACCES")
def run_by_the_loader(world: World) -> object:
    shutil.copyfile("/bin/sh", "not-executable")
    loader = "/lib64/ld-linux-x86-64.so.2"
    return subprocess.run(
        [loader, "./not-executable", "-c", f"cat {world.secret}"], capture_output=True
    ).stdout


@PRIVILEGES.attempt("a child in a session of its own: stays in the jail", "done")
def leave_a_daemon(world: World) -> object:
    code = f"import os; open({world.secret!r}).read()"
    return subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stderr=subprocess.PIPE
    ).communicate()
