"""Attempts on files: reading a secret, changing mounted files, reaching another jail's folder."""

# ruff: noqa: SIM115  (an attempt ends at once, and its crude ways are the point)

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import subprocess

from cenote_security.attacks.escape_attempt import Family
from cenote_security.attacks.inside_unsafe import World, call, first_success

FILES = Family("files")
_REFUSED = ("ENOENT", "EACCES")
_SHUT = (*_REFUSED, "EPERM", "EROFS")


@FILES.attempt("path traversal, CWE-22", *_REFUSED)
def climb_with_dots(world: World) -> object:
    return open("../" * 40 + world.secret.lstrip("/")).read()


@FILES.attempt("symbolic link, CWE-61", *_REFUSED)
def read_through_a_symbolic_link(world: World) -> object:
    os.symlink(world.secret, "link")
    try:
        return open("link").read()
    finally:
        os.unlink("link")


@FILES.attempt("hard link into one's own folder", "EXDEV", *_SHUT)
def link_the_secret_in(world: World) -> object:
    os.link(world.secret, "linked")
    return open("linked").read()


@FILES.attempt("name_to_handle_at", "EPERM")
def take_a_handle(world: World) -> object:
    handle = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(132))
    return call("name_to_handle_at", -100, b"/", handle, ctypes.create_string_buffer(4), 0)


@FILES.attempt("openat from a descriptor of the root", *_REFUSED)
def open_below_a_descriptor_of_the_root(world: World) -> object:
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    above = os.open("../../..", os.O_PATH | os.O_DIRECTORY, dir_fd=root)
    return open(os.open(world.secret.lstrip("/"), os.O_RDONLY, dir_fd=above)).read()


@FILES.attempt("/proc/PID/root", *_REFUSED)
def go_through_another_process_s_root(world: World) -> object:
    pids = (1, os.getppid(), world.client, world.bystander, world.neighbour, "self")
    return first_success(*(lambda pid=pid: open(f"/proc/{pid}/root{world.secret}").read() for pid in pids))


@FILES.attempt("/proc/PID/cwd, CVE-2024-21626 (runc)", *_REFUSED)
def go_through_a_leaked_directory(world: World) -> object:
    below = "../" * 20 + world.secret.lstrip("/")
    places = [f"self/fd/{number}" for number in range(40)]
    places += [f"{pid}/cwd" for pid in (1, os.getppid(), world.client, world.bystander, "self")]
    ways = [lambda place=place: open(f"/proc/{place}/{below}").read() for place in places]
    try:
        return first_success(*ways)
    except NotADirectoryError as error:
        raise FileNotFoundError(2, "only files are open") from error


@FILES.attempt("changing a module that all jails share", "EACCES", "EROFS")
def change_a_shared_module(world: World) -> object:
    import json

    return open(json.__file__, "a").write("\nimport os\n")


@FILES.attempt("/etc/ld.so.preload", *_SHUT)
def preload_a_library_for_everybody(world: World) -> object:
    return open("/etc/ld.so.preload", "w").write("/workspace/evil.so")


@FILES.attempt("/etc/passwd, /etc/cron.d, /etc/sudoers.d", *_SHUT)
def become_a_known_user(world: World) -> object:
    paths = ("/etc/passwd", "/etc/cron.d/evil", "/etc/sudoers.d/evil", "/var/spool/cron/crontabs/root")
    return first_success(*(lambda path=path: open(path, "a").write("evil") for path in paths))


@FILES.attempt("/etc/shadow", *_REFUSED)
def read_password_hashes(world: World) -> object:
    return first_success(*(lambda path=path: open(path).read() for path in ("/etc/shadow", "/etc/gshadow")))


@FILES.attempt("credentials in the home folder", *_REFUSED)
def read_credentials(world: World) -> object:
    names = (
        ".ssh/id_rsa",
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".netrc",
        ".gitconfig",
        ".bash_history",
        ".bashrc",
    )
    homes = (world.home, "/root", "/home/user")
    return first_success(
        *(lambda path=f"{home}/{name}": open(path).read() for home in homes for name in names)
    )


@FILES.attempt("sockets and tokens of services", "ENXIO", *_REFUSED)
def read_service_tokens(world: World) -> object:
    paths = (
        "/run/secrets/kubernetes.io/serviceaccount/token",
        "/var/run/docker.sock",
        "/tmp/ray/session_latest/session.json",
    )
    return first_success(*(lambda path=path: open(path).read() for path in paths))


@FILES.attempt("another jail's working directory", *_REFUSED)
def read_the_neighbour_s_file(world: World) -> object:
    places = (f"/proc/{world.neighbour}/cwd", f"/proc/{world.neighbour}/root{world.neighbour_folder}")
    if world.neighbour_folder != os.getcwd():
        places = (*places, world.neighbour_folder)
    return first_success(*(lambda place=place: open(f"{place}/mine").read() for place in places))


@FILES.attempt("memory, disk and console devices", *_SHUT)
def open_a_device(world: World) -> object:
    names = ("mem", "kmem", "port", "kmsg", "vda", "sda", "fuse", "kvm", "ptmx", "console", "tty0", "net/tun")
    return first_success(*(lambda name=name: os.open(f"/dev/{name}", os.O_RDONLY) for name in names))


@FILES.attempt("unnamed file in a host folder, O_TMPFILE", *_SHUT)
def make_an_unnamed_file_outside(world: World) -> object:
    return os.open(world.folder, os.O_TMPFILE | os.O_RDWR, 0o666)


@FILES.attempt("linkat with AT_EMPTY_PATH", "EXDEV", *_SHUT)
def link_an_open_file_out(world: World) -> object:
    mine = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o666)
    return os.link(f"/proc/self/fd/{mine}", f"{world.folder}/linked", follow_symlinks=True)


@FILES.attempt("rename across folders, Landlock before ABI 2", "EXDEV", *_SHUT)
def move_a_file_out(world: World) -> object:
    open("mine-to-move", "w").close()
    return os.rename("mine-to-move", f"{world.folder}/moved")


@FILES.attempt("renameat2 exchange", "EXDEV", *_SHUT)
def exchange_a_file_with_one_outside(world: World) -> object:
    open("mine-to-exchange", "w").close()
    return call(
        316 if os.uname().machine == "x86_64" else 276,
        -100,
        b"mine-to-exchange",
        -100,
        world.secret.encode(),
        2,
    )


@FILES.attempt("removing and cutting host files", "EBUSY", *_SHUT)
def remove_or_cut_the_secret(world: World) -> object:
    return first_success(
        lambda: os.unlink(world.secret),
        lambda: os.truncate(world.secret, 0),
        lambda: os.rename(world.secret, world.secret + "2"),
        lambda: os.rmdir(os.path.dirname(world.shown)),
    )


@FILES.attempt("truncate, Landlock before ABI 3", *_SHUT)
def cut_what_is_shown(world: World) -> object:
    return os.truncate(world.shown, 0)


@FILES.attempt("extended attributes by descriptor", "ENOTSUP", *_SHUT)
def write_extended_attributes_by_descriptor(world: World) -> object:
    return os.setxattr(os.open(world.shown, os.O_RDONLY), "user.cenote", b"left outside")


@FILES.attempt("attribute flags, ioctl FS_IOC_SETFLAGS", "ENOTTY", *_SHUT)
def make_a_shown_file_immutable(world: World) -> object:
    with open(world.shown) as shown:
        return fcntl.ioctl(shown, 0x40086602, (0x10).to_bytes(8, "little"))


@FILES.attempt("reopening a read-only descriptor for writing, /proc/self/fd", *_SHUT)
def reopen_for_writing(world: World) -> object:
    shown = os.open(world.shown, os.O_RDONLY)
    return os.open(f"/proc/self/fd/{shown}", os.O_RDWR)


@FILES.attempt("a shared writable mapping of a read-only file", "EACCES", "EPERM")
def map_a_shown_file_for_writing(world: World) -> object:
    shown = os.open(world.shown, os.O_RDONLY)
    memory = mmap.mmap(shown, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    address = ctypes.CDLL(None).mmap
    address.restype = ctypes.c_long
    call(10 if os.uname().machine == "x86_64" else 226, address(None, 4096, 1, 1, shown, 0), 4096, 3)
    return memory[:4]


@FILES.attempt(
    "writing /proc/self/mem over a mapped file, Dirty COW's road (CVE-2016-5195)", "done", "EACCES", "EROFS"
)
def write_own_memory_over_a_mapping(world: World) -> object:
    shown = os.open(world.shown, os.O_RDONLY)
    mapping = ctypes.CDLL(None).mmap
    mapping.restype = ctypes.c_long
    address = mapping(None, 4096, mmap.PROT_READ, mmap.MAP_PRIVATE, shown, 0)
    memory = os.open("/proc/self/mem", os.O_RDWR)
    for _ in range(200):
        os.pwrite(memory, b"dirty cow", address)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(address), 4096, mmap.MADV_DONTNEED)
    return os.pread(memory, 9, address)


@FILES.attempt("splice into a pipe and write, Dirty Pipe (CVE-2022-0847)", "done")
def write_through_a_pipe(world: World) -> object:
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, 1032)  # F_GETPIPE_SZ: each slot must once have been full
    os.write(writer, b"x" * size)
    os.read(reader, size)
    os.splice(os.open(world.shown, os.O_RDONLY), writer, 1, offset_src=0)
    return os.write(writer, b"dirty pipe")


@FILES.attempt(
    "copy_file_range and FICLONE onto a read-only descriptor", "EBADF", "EXDEV", "ENOTTY", "EINVAL"
)
def copy_onto_what_is_shown(world: World) -> object:
    open("source", "w").write("changed")
    source, shown = os.open("source", os.O_RDONLY), os.open(world.shown, os.O_RDONLY)
    return first_success(
        lambda: os.copy_file_range(source, shown, 7), lambda: fcntl.ioctl(shown, 0x40049409, source)
    )


@FILES.attempt("sendfile from a secret", *_REFUSED)
def send_the_secret(world: World) -> object:
    return os.sendfile(1, os.open(world.secret, os.O_RDONLY), 0, 100)


@FILES.attempt("a child program that reads the secret", "CalledProcessError", "FileNotFoundError")
def let_a_child_read(world: World) -> object:
    return subprocess.check_output(["cat", world.secret], stderr=subprocess.STDOUT)


@FILES.attempt("leaving with fchdir", *_REFUSED)
def change_directory_out(world: World) -> object:
    os.fchdir(os.open(world.folder, os.O_RDONLY | os.O_DIRECTORY))
    return os.listdir(".")


@FILES.attempt("watching a host folder, inotify", "EPERM", "ENOENT", "EACCES")
def watch_a_folder(world: World) -> object:
    return call("inotify_add_watch", ctypes.CDLL(None).inotify_init(), world.folder.encode(), 0xFFF)


@FILES.attempt("watching a file system, fanotify", "EPERM")
def watch_a_file_system(world: World) -> object:
    return call("fanotify_init", 0, 0)


@FILES.attempt("libraries that open files: pandas and numpy", *_REFUSED)
def let_numpy_read(world: World) -> object:
    import numpy

    return first_success(
        lambda: numpy.fromfile(world.secret, dtype="u1"),
        lambda: numpy.memmap(world.secret, dtype="u1", mode="r+"),
    )
