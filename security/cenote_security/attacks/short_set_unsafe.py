"""A short set of attempts, for a user's own machine. Each is harmless even where it gets through."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import stat
import struct
import threading
import time

from cenote_security.attacks.escape_attempt import Family
from cenote_security.attacks.inside_unsafe import World, call, first_success, in_child

SHORT = Family("short")


@SHORT.attempt("reading by path", "ENOENT", "EACCES")
def read_a_secret(world: World) -> object:
    return open(world.secret).read()


@SHORT.attempt("symbolic link race, CVE-2018-15664 (docker cp)", "done")
def race_with_symbolic_links(world: World) -> object:
    os.makedirs("race/real", exist_ok=True)
    open("race/real/secret", "w").write("mine")
    os.symlink("real", "race/now")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for target in (world.folder, "real"):
                os.symlink(target, "race/next")
                os.rename("race/next", "race/now")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        try:
            seen.add(open("race/now/secret").read())
        except OSError:
            continue
    done.set()
    thread.join()
    return seen


@SHORT.attempt("open_by_handle_at, 'Shocker' (Docker, 2014)", "EPERM")
def open_by_handle(world: World) -> object:
    handle = (8).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(8, "little")
    return call("open_by_handle_at", os.open(".", os.O_RDONLY), ctypes.create_string_buffer(handle), 0)


@SHORT.attempt("/proc/self/exe, CVE-2019-5736 (runc)", "EACCES", "EROFS", "ETXTBSY")
def overwrite_the_running_program(world: World) -> object:
    program = os.open("/proc/self/exe", os.O_PATH)
    return os.open(f"/proc/self/fd/{program}", os.O_WRONLY)


@SHORT.attempt("device node of the disk, mknod(2)", "EPERM", "EACCES")
def make_a_device_node(world: World) -> object:
    os.mknod("disk", stat.S_IFBLK | 0o666, os.makedev(254, 0))
    return open("disk", "rb").read(4096)


@SHORT.attempt("making entries in a host folder", "ENOENT", "EACCES", "EPERM", "EROFS")
def make_entries_outside(world: World) -> object:
    base = f"{world.folder}/new"
    return first_success(
        lambda: open(base, "w"),
        lambda: os.mkdir(base),
        lambda: os.symlink("/", base),
        lambda: os.mkfifo(base),
        lambda: os.mknod(base, stat.S_IFREG | 0o666),
        lambda: socket.socketpair()[0].bind(base),
    )


@SHORT.attempt("mode and owner, which Landlock does not cover", "ENOENT", "EACCES", "EPERM", "EROFS")
def change_mode_or_owner(world: World) -> object:
    paths = (world.secret, world.shown, world.folder)
    ways = [lambda path=path: os.chmod(path, 0o777) for path in paths]
    ways += [lambda path=path: os.chown(path, os.getuid(), -1) for path in paths]
    return first_success(*ways)


@SHORT.attempt(
    "extended attributes, which Landlock does not cover", "ENOTSUP", "ENOENT", "EACCES", "EPERM", "EROFS"
)
def write_extended_attributes(world: World) -> object:
    paths = (world.secret, world.shown, world.folder)
    ways = [lambda path=path: os.setxattr(path, "user.cenote", b"left outside") for path in paths]
    ways += [
        lambda path=path: os.setxattr(path, "security.capability", b"\1\0\0\2" + b"\xff" * 16)
        for path in paths
    ]
    return first_success(*ways)


@SHORT.attempt("writing to a mount that is read-only", "ENOENT", "EACCES", "EPERM", "EROFS")
def write_to_what_is_shown(world: World) -> object:
    return first_success(
        lambda: os.open(world.shown, os.O_RDWR),
        lambda: os.open(world.shown, os.O_WRONLY | os.O_APPEND),
        lambda: os.open(world.shown, os.O_RDONLY | os.O_TRUNC),
    )


@SHORT.attempt("kernel memory and symbols", "ValueError", "ENOENT", "EACCES", "EPERM", "EROFS")
def read_kernel_memory(world: World) -> object:
    content = first_success(
        *(
            lambda name=name: open(f"/proc/{name}", "rb").read(64)
            for name in ("kcore", "kallsyms", "kmsg", "iomem")
        )
    )
    assert isinstance(content, bytes)
    if not content.strip(b"0 -:\n") or b" 00000000" in content or content.startswith(b"00000000"):
        raise ValueError("nothing in it")
    return content


@SHORT.attempt("environment and arguments of others", "ENOENT", "EACCES", "ValueError")
def read_environments(world: World) -> object:
    pids = (1, os.getppid(), world.client, world.bystander, world.neighbour)
    ways = [lambda pid=pid: open(f"/proc/{pid}/environ").read() for pid in pids]
    ways += [lambda pid=pid: open(f"/proc/{pid}/cmdline").read() for pid in pids]
    if content := first_success(*ways):
        return content
    raise ValueError("nothing in it")


@SHORT.attempt("pidfd_send_signal", "EINVAL", "ESRCH", "EPERM")
def signal_by_pidfd(world: World) -> object:
    pids = (world.client, world.bystander, world.neighbour, os.getppid())
    return first_success(
        *(lambda pid=pid: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGSTOP) for pid in pids)
    )


@SHORT.attempt("PTRACE_ATTACH", "EPERM")
def attach_a_tracer(world: World) -> object:
    return first_success(
        *(lambda pid=pid: call("ptrace", 16, pid, 0, 0) for pid in (world.client, os.getppid()))
    )


@SHORT.attempt("process_vm_readv", "EPERM")
def read_client_memory(world: World) -> object:
    here = ctypes.create_string_buffer(64)
    vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(here), 64))
    return call("process_vm_readv", world.client, vector, 1, vector, 1, 0)


@SHORT.attempt("the warden's descriptors", "ENOENT", "EACCES", "EPERM")
def take_the_control_socket(world: World) -> object:
    return first_success(*(lambda n=n: os.open(f"/proc/{os.getppid()}/fd/{n}", os.O_RDWR) for n in range(8)))


@SHORT.attempt("SO_PEERPIDFD: a handle on its maker", "EACCES", "ENOPROTOOPT", "ESRCH", "EPERM")
def get_a_handle_on_the_client(world: World) -> object:
    frames = socket.socket(fileno=os.dup(3))
    peer = frames.getsockopt(socket.SOL_SOCKET, 77)
    return first_success(
        lambda: signal.pidfd_send_signal(peer, signal.SIGURG),
        lambda: call("pidfd_getfd", peer, 0, 0),
        lambda: call("setns", peer, 0x20000),
        *(lambda n=n: fcntl.ioctl(peer, 0xFF00 + n) for n in range(1, 11)),
    )


@SHORT.attempt("unshare(CLONE_NEWUSER), the root of most container escapes", "EPERM")
def make_a_user_namespace(world: World) -> object:
    return call("unshare", 0x10000000)


@SHORT.attempt("clone3, whose flags no filter sees", "ENOSYS")
def clone_by_the_new_call(world: World) -> object:
    arguments = ctypes.create_string_buffer((0x10000000).to_bytes(8, "little") + bytes(80))
    return call("clone3", arguments, 88)


@SHORT.attempt("fsopen and fsconfig, CVE-2022-0185", "EPERM")
def use_the_new_mount_calls(world: World) -> object:
    return first_success(
        lambda: call("fsopen", b"tmpfs", 0),
        lambda: call("fsconfig", 3, 1, b"source", b"x" * 5000, 0),
        lambda: call("fsmount", 3, 0, 0),
        lambda: call("fspick", -100, b"/", 0),
    )


@SHORT.attempt("keyrings, CVE-2016-0728 and keys shared per user", "EPERM")
def use_keyrings(world: World) -> object:
    return first_success(
        lambda: call("add_key", b"user", b"cenote", b"x", 1, -4),
        lambda: call("request_key", b"user", b"cenote", 0, -4),
        lambda: call("keyctl", 1, b"session", 0, 0, 0),
    )


@SHORT.attempt("io_uring, CVE-2022-29582 and many more", "ENOSYS")
def use_io_uring(world: World) -> object:
    return call("io_uring_setup", 8, ctypes.create_string_buffer(120))


@SHORT.attempt("bpf, CVE-2021-3490", "EPERM")
def load_a_bpf_program(world: World) -> object:
    return first_success(*(lambda n=n: call("bpf", n, ctypes.create_string_buffer(128), 128) for n in (0, 5)))


@SHORT.attempt("TIOCSTI with an upper half, CVE-2019-10063", "EPERM")
def type_with_an_upper_half(world: World) -> object:
    return call("ioctl", 1, (1 << 32) | 0x5412, b"x")


@SHORT.attempt("the x32 call table", "SIGSYS", machine="x86_64")
def call_through_the_x32_table(world: World) -> object:
    in_child(lambda: call(0x40000000 | 39))
    return None


@SHORT.attempt("capset", "EPERM")
def take_capabilities(world: World) -> object:
    header = ctypes.create_string_buffer((0x20080522).to_bytes(4, "little") + bytes(4))
    return call("capset", header, ctypes.create_string_buffer(b"\xff" * 24))


@SHORT.attempt("a weaker seccomp filter on top", "EPERM")
def install_another_filter(world: World) -> object:
    allow_all = ctypes.create_string_buffer(b"\x06\0\0\0\0\0\xff\x7f")
    program = ctypes.create_string_buffer(
        (1).to_bytes(8, "little") + ctypes.addressof(allow_all).to_bytes(8, "little")
    )
    return first_success(lambda: call("seccomp", 1, 0, program), lambda: call("prctl", 22, 2, program, 0, 0))


@SHORT.attempt(
    "a loopback service: Ray, a database, a notebook",
    "ENETUNREACH",
    "ECONNREFUSED",
    "EAFNOSUPPORT",
    "EPERM",
    "EACCES",
)
def connect_to_a_local_service(world: World) -> object:
    return socket.create_connection(("127.0.0.1", world.tcp), timeout=3)


@SHORT.attempt(
    "an abstract socket of the host, CVE-2020-15257 (containerd)",
    "ENETUNREACH",
    "ECONNREFUSED",
    "EAFNOSUPPORT",
    "EPERM",
)
def connect_to_an_abstract_socket(world: World) -> None:
    socket.socket(socket.AF_UNIX).connect("\0" + world.abstract)


@SHORT.attempt(
    "a socket file of the host: docker.sock and its kind",
    "ENOENT",
    "ENETUNREACH",
    "ECONNREFUSED",
    "EAFNOSUPPORT",
    "EPERM",
)
def connect_to_a_socket_file(world: World) -> object:
    paths = (world.socket, "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private")
    return first_success(*(lambda path=path: socket.socket(socket.AF_UNIX).connect(path) for path in paths))


@SHORT.attempt(
    "a pair of a family that is refused: TIPC (CVE-2021-43267) is made before it is", "EAFNOSUPPORT"
)
def make_a_pair_of_a_rare_family(world: World) -> object:
    families = (30, 40, 38, 16)
    return first_success(*(lambda f=f, t=t: socket.socketpair(f, t) for f in families for t in (1, 5)))
