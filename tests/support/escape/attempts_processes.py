"""Attempts on processes: /proc, signals, tracing, other processes' memory and descriptors."""

# ruff: noqa: SIM115  (an attempt ends at once, and its crude ways are the point)

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct

from cenote_security.attacks.escape_attempt import Family
from cenote_security.attacks.inside_unsafe import World, call, first_success

PROC = Family("proc")
SIGNALS = Family("signals")
TRACING = Family("tracing")
DESCRIPTORS = Family("descriptors")
COMMON = Family("memory that jails have in common")
_SHUT = ("ENOENT", "EACCES", "EPERM", "EROFS")
_NOBODY = ("ESRCH", "EPERM")

# -- /proc and /sys ---------------------------------------------------------------------------------------


@PROC.attempt("core_pattern, a way to host root", *_SHUT)
def set_the_core_handler(world: World) -> object:
    return open("/proc/sys/kernel/core_pattern", "w").write("|/workspace/evil %p")


@PROC.attempt("modprobe path, the last step of many kernel exploits", *_SHUT)
def set_the_module_loader(world: World) -> object:
    return open("/proc/sys/kernel/modprobe", "w").write("/workspace/evil")


@PROC.attempt("magic system request", *_SHUT)
def request_a_crash(world: World) -> object:
    return open("/proc/sysrq-trigger", "w").write("h")


@PROC.attempt("binfmt_misc", *_SHUT)
def register_a_binary_format(world: World) -> object:
    return open("/proc/sys/fs/binfmt_misc/register", "w").write(":evil:M::EV::/workspace/evil:C")


@PROC.attempt("host sysctls: caches, panic, pid_max, address randomisation", *_SHUT)
def set_host_parameters(world: World) -> object:
    names = (
        "vm/drop_caches",
        "kernel/panic",
        "kernel/pid_max",
        "kernel/randomize_va_space",
        "kernel/yama/ptrace_scope",
    )
    return first_success(*(lambda name=name: open(f"/proc/sys/{name}", "w").write("1") for name in names))


@PROC.attempt("keys, timers and slabs of the whole machine", "ValueError", *_SHUT)
def read_machine_tables(world: World) -> object:
    names = ("keys", "key-users", "timer_list", "vmallocinfo", "slabinfo", "sched_debug", "config.gz")
    if content := first_success(*(lambda name=name: open(f"/proc/{name}", "rb").read(99) for name in names)):
        return content
    raise ValueError("nothing in it")


@PROC.attempt("memory maps and memory of others", "ENOENT", "EACCES", "EPERM")
def read_memory_of_others(world: World) -> object:
    pids = (1, os.getppid(), world.client, world.bystander, world.neighbour)
    ways = [lambda pid=pid: open(f"/proc/{pid}/mem", "rb").read(1) for pid in pids]
    ways += [lambda pid=pid: open(f"/proc/{pid}/maps").read() for pid in pids]
    return first_success(*ways)


@PROC.attempt("out-of-memory score", *_SHUT)
def escape_the_out_of_memory_killer(world: World) -> object:
    return open("/proc/self/oom_score_adj", "w").write("-1000")


@PROC.attempt("user mapping of a namespace", *_SHUT)
def map_root(world: World) -> object:
    return open("/proc/self/uid_map", "w").write("0 0 4294967295")


@PROC.attempt("security attributes and login id", "EINVAL", *_SHUT)
def change_the_security_label(world: World) -> object:
    names = ("attr/current", "attr/exec", "loginuid")
    return first_success(*(lambda name=name: open(f"/proc/self/{name}", "w").write("0") for name in names))


@PROC.attempt("cgroup v1 release_agent, CVE-2022-0492", *_SHUT)
def set_a_release_agent(world: World) -> object:
    groups = ("memory", "rdma", "pids", "cpu", "devices", "systemd")
    return first_success(
        *(
            lambda name=name: open(f"/sys/fs/cgroup/{name}/release_agent", "w").write("/evil")
            for name in groups
        )
    )


@PROC.attempt("leaving one's control group", *_SHUT)
def move_to_another_control_group(world: World) -> object:
    groups = ("memory", "pids", "cpu", "unified", ".")
    return first_success(
        *(lambda name=name: open(f"/sys/fs/cgroup/{name}/cgroup.procs", "w").write("0") for name in groups)
    )


@PROC.attempt("uevent_helper and other files of sysfs", *_SHUT)
def set_a_uevent_helper(world: World) -> object:
    paths = ("/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/transparent_hugepage/enabled")
    return first_success(*(lambda path=path: open(path, "w").write("evil") for path in paths))


@PROC.attempt("firmware and hardware tables", *_SHUT)
def read_firmware(world: World) -> object:
    paths = ("/sys/firmware/acpi/tables/DSDT", "/sys/firmware/dmi/tables/DMI", "/proc/bus/pci/devices")
    return first_success(*(lambda path=path: open(path, "rb").read(1) for path in paths))


@PROC.attempt("the proc below, reached by unmounting masks", "EPERM")
def take_masks_off(world: World) -> object:
    return call("umount2", b"/proc/kcore", 2)


# -- signals ----------------------------------------------------------------------------------------------


@SIGNALS.attempt("kill(2) on the client, its zygote's jails, a stranger", *_NOBODY)
def kill_strangers(world: World) -> object:
    pids = (world.client, world.bystander, world.neighbour)
    return first_success(*(lambda pid=pid: os.kill(pid, signal.SIGSTOP) for pid in pids))


@SIGNALS.attempt("kill(-1)", "done", *_NOBODY)
def kill_everybody(world: World) -> object:
    return os.kill(-1, signal.SIGURG)  # harmless to those that ignore it; it reaches all that SIGKILL would


@SIGNALS.attempt("stopping and killing the parent", "done", *_NOBODY)
def stop_the_warden(world: World) -> object:
    return [os.kill(os.getppid(), number) for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL)]


@SIGNALS.attempt("kill(2) on a process group", *_NOBODY)
def kill_a_group(world: World) -> object:
    groups = (world.client, world.bystander)
    return first_success(*(lambda pid=pid: os.killpg(pid, signal.SIGSTOP) for pid in groups))


@SIGNALS.attempt("tgkill", *_NOBODY)
def signal_a_thread(world: World) -> object:
    nr = 234 if os.uname().machine == "x86_64" else 131
    return first_success(*(lambda pid=pid: call(nr, pid, pid, 19) for pid in (world.client, world.bystander)))


@SIGNALS.attempt("rt_sigqueueinfo with forged sender", *_NOBODY)
def queue_a_signal(world: World) -> object:
    nr = 129 if os.uname().machine == "x86_64" else 138
    info = struct.pack("iii", 19, 0, -1) + bytes(116)
    pids = (world.client, world.bystander)
    return first_success(
        *(lambda pid=pid: call(nr, pid, 19, ctypes.create_string_buffer(info)) for pid in pids)
    )


@SIGNALS.attempt("SIGIO by F_SETOWN", "done", *_NOBODY)
def let_a_socket_signal(world: World) -> object:
    ours, theirs = socket.socketpair()
    for pid in (world.client, world.bystander):
        fcntl.fcntl(ours, 10, signal.SIGSTOP)  # F_SETSIG
        fcntl.fcntl(ours, fcntl.F_SETOWN, pid)
        fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        theirs.send(b"x")
        ours.recv(1)
    return "armed"


@SIGNALS.attempt("signals by a timer, SIGEV_THREAD_ID", "EINVAL", *_NOBODY)
def let_a_timer_signal(world: World) -> object:
    nr = 222 if os.uname().machine == "x86_64" else 107
    event = struct.pack("QiiI", 0, 19, 4, world.bystander) + bytes(44)
    return call(nr, 1, ctypes.create_string_buffer(event), ctypes.create_string_buffer(8))


@SIGNALS.attempt("signals through a terminal", "ENOTTY", "ENXIO", "ENOENT", "EACCES", "EPERM")
def signal_through_a_terminal(world: World) -> object:
    return fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"\x03")


# -- tracing and other processes' memory ------------------------------------------------------------------


@TRACING.attempt("PTRACE_SEIZE", "EPERM")
def seize(world: World) -> object:
    return first_success(
        *(lambda pid=pid: call("ptrace", 0x4206, pid, 0, 0) for pid in (world.bystander, os.getppid()))
    )


@TRACING.attempt("PTRACE_TRACEME, CVE-2019-13272", "EPERM")
def be_traced_by_the_warden(world: World) -> object:
    return call("ptrace", 0, 0, 0, 0)


@TRACING.attempt("process_vm_writev", "EPERM")
def write_client_memory(world: World) -> object:
    here = ctypes.create_string_buffer(64)
    vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(here), 64))
    return call("process_vm_writev", world.client, vector, 1, vector, 1, 0)


@TRACING.attempt("process_madvise, process_mrelease", "EPERM")
def advise_another_process(world: World) -> object:
    return first_success(
        lambda: call("process_madvise", 0, 0, 0, 21, 0), lambda: call("process_mrelease", 0, 0)
    )


@TRACING.attempt("kcmp", "EPERM")
def compare_with_a_stranger(world: World) -> object:
    return call("kcmp", os.getpid(), world.client, 0, 0, 0)


@TRACING.attempt("move_pages, migrate_pages", "EPERM")
def move_pages_of_others(world: World) -> object:
    return first_success(
        lambda: call("move_pages", world.bystander, 0, 0, 0, 0, 0),
        lambda: call("migrate_pages", world.bystander, 0, 0, 0),
    )


@TRACING.attempt("perf_event_open, CVE-2013-2094", "EPERM")
def count_events_of_others(world: World) -> object:
    attributes = ctypes.create_string_buffer(struct.pack("II", 1, 128) + bytes(120))
    return call("perf_event_open", attributes, world.client, -1, -1, 0)


@TRACING.attempt("get_robust_list of another process", *_NOBODY)
def read_a_robust_list(world: World) -> object:
    nr = 274 if os.uname().machine == "x86_64" else 100
    out = (ctypes.create_string_buffer(8), ctypes.create_string_buffer(8))
    return first_success(
        *(lambda pid=pid: call(nr, pid, *out) for pid in (world.client, world.bystander, os.getppid()))
    )


@TRACING.attempt("choosing a tracer, PR_SET_PTRACER", "EPERM")
def choose_a_tracer(world: World) -> object:
    return call("prctl", 0x59616D61, -1, 0, 0, 0)


@TRACING.attempt("prlimit on another process", *_NOBODY)
def limit_another_process(world: World) -> object:
    pids = (world.client, world.bystander, os.getppid())
    return first_success(
        *(lambda pid=pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)) for pid in pids)
    )


@TRACING.attempt("scheduling of another process", *_NOBODY)
def slow_another_process(world: World) -> object:
    pids = (world.client, world.bystander, os.getppid())
    return first_success(
        *(lambda pid=pid: os.sched_setaffinity(pid, {0}) for pid in pids),
        *(lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, 19) for pid in pids),
        lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
    )


@TRACING.attempt("real-time scheduling of oneself", "EPERM")
def become_real_time(world: World) -> object:
    return os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))


# -- descriptors ------------------------------------------------------------------------------------------


@DESCRIPTORS.attempt("descriptors left open, CVE-2024-21626 (runc)", "EBADF")
def find_a_leaked_descriptor(world: World) -> object:
    known = {0, 1, 2, 3}
    open_ones = {int(name) for name in os.listdir("/proc/self/fd")} - known
    links = {number: os.path.realpath(f"/proc/self/fd/{number}") for number in open_ones}
    strange = {
        number: link for number, link in links.items() if os.path.exists(link) and "/proc/" not in link
    }
    if strange:
        return strange
    raise OSError(9, "none")


@DESCRIPTORS.attempt("pidfd_getfd", "EPERM", "ESRCH", "ENOENT")
def copy_a_descriptor(world: World) -> object:
    pids = (os.getppid(), world.client, world.bystander, world.neighbour)
    return first_success(*(lambda pid=pid: call("pidfd_getfd", os.pidfd_open(pid), 3, 0) for pid in pids))


@DESCRIPTORS.attempt("forged credentials on a socket", "EPERM", "EINVAL")
def forge_credentials(world: World) -> object:
    ours, _theirs = socket.socketpair()
    return ours.sendmsg([b"x"], [(socket.SOL_SOCKET, 2, struct.pack("iii", world.client, 0, 0))])


@DESCRIPTORS.attempt("a flood of descriptors in flight, CVE-2013-4312", "ETOOMANYREFS", "EMFILE", "EAGAIN")
def keep_descriptors_in_flight(world: World) -> object:
    pairs = []
    rights = array.array("i", [0] * 200)
    try:
        while True:
            pairs.append(socket.socketpair())
            pairs[-1][0].setblocking(False)
            for _ in range(10):
                pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


@DESCRIPTORS.attempt("sockets in flight that hold each other, CVE-2021-4083", "done")
def make_a_cycle_of_sockets(world: World) -> object:
    for _ in range(50):
        one, other = socket.socketpair()
        socket.send_fds(one, [b"x"], [other.fileno()])
        socket.send_fds(other, [b"x"], [one.fileno()])
        one.close()
        other.close()
    return "left to the kernel's collector"


@DESCRIPTORS.attempt("reading one's own output back", "done", "EACCES", "EAGAIN")
def steal_the_output(world: World) -> object:
    return os.read(os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK), 100)


# -- memory that jails share --------------------------------------------------------------------------------


@COMMON.attempt("a hole in the file behind a zygote's heap, MADV_REMOVE", "EACCES", machine="x86_64")
def cut_a_hole_into_the_common_heap(world: World) -> object:
    with open("/proc/self/maps") as maps:
        place = next(line for line in maps if "memfd:cenote-common" in line).split()[0]
    return call(28, int(place.partition("-")[0], 16), 4096, 9)


@COMMON.attempt("the file behind a zygote's heap, /proc/PID/map_files", "EPERM", "EACCES")
def open_the_common_heap(world: World) -> object:
    with open("/proc/self/maps") as maps:
        place = next(line for line in maps if "memfd:cenote-common" in line).split()[0]
    return os.truncate(f"/proc/self/map_files/{place}", 0)


@COMMON.attempt("a second mapping of a zygote's libraries, mremap(old_size=0)", "EINVAL", machine="x86_64")
def map_the_common_libraries_once_more(world: World) -> object:
    with open("/proc/self/maps") as maps:
        place = next(line for line in maps if "memfd:cenote-common" in line).split()[0]
    return call(25, int(place.partition("-")[0], 16), 0, 4096, 1)


@COMMON.attempt(
    "advice that pages of all jails are broken, MADV_HWPOISON", "EPERM", "EINVAL", machine="x86_64"
)
def poison_the_common_heap(world: World) -> object:
    with open("/proc/self/maps") as maps:
        place = next(line for line in maps if "memfd:cenote-common" in line).split()[0]
    return call(28, int(place.partition("-")[0], 16), 4096, 100)
