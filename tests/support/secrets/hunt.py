"""Searches for canaries in every place that code in a jail can read. It runs as a cell; it is also a list of places.

The pattern that finds them never contains one, or the search of this process's own
memory would find itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator

WALLED = "LEVEL" != "none"
PATTERN = re.compile(b"[c]anary-TOKEN-([a-z_]+)")
BLOCK = 4 << 20
OVERLAP = 100  # a canary across two blocks is found in the second
RECENT = (
    time.time() - 3600
)  # only contents of files written since then: the machine's own files hold no canary
SKIPPED = {"/proc", "/sys"}  # inspected one by one
INSTALLED = {"/usr", sys.prefix, sys.base_prefix, *(path for path in sys.path if path.endswith("-packages"))}
KEYCTL = 250 if os.uname().machine == "x86_64" else 219
SEARCH_KEY, READ_KEY = 10, 11


class Hunt:
    """found: for each canary's place, where it was found."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def look(self, data: bytes, where: str) -> None:
        for match in PATTERN.finditer(data):
            seen = self.found.setdefault(match[1].decode(), [])
            if where not in seen:
                seen.append(where)

    def look_at_text(self, text: object, where: str) -> None:
        with contextlib.suppress(Exception):
            self.look(str(text).encode("utf-8", "surrogateescape"), where)

    # -- one thing --

    def file(self, path: str, where: str = "") -> None:
        """The content of anything that can be opened without blocking."""
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                self.descriptor(descriptor, where or path)
            finally:
                os.close(descriptor)

    def descriptor(self, descriptor: int, where: str) -> None:
        rest = b""
        while block := os.read(descriptor, BLOCK):
            self.look(rest + block, where)
            rest = block[-OVERLAP:]

    # -- places --

    def environment(self) -> None:
        self.look_at_text(dict(os.environb), "os.environ")
        self.look_at_text([sys.argv, sys.orig_argv, sys.path, sys.flags, sys.prefix], "sys")

    def processes(self, known: Iterable[int]) -> None:
        """The known ones and, inside a jail, all visible ones. (Without isolation these would be other users'.)"""
        listed = (
            {int(name) for name in _names("/proc") if name.isdecimal()} | {1, os.getppid()}
            if WALLED
            else set()
        )
        for pid in {*listed, *known, os.getpid()}:
            base = f"/proc/{pid}"
            for name in ("environ", "cmdline", "maps", "mountinfo", "status", "comm", "cgroup"):
                self.file(f"{base}/{name}")
            for link in ("cwd", "exe", "root"):
                self.link(f"{base}/{link}")
            for name in _names(f"{base}/cwd"):
                self.look_at_text(name, f"{base}/cwd")
            self.descriptors(pid)
            self.memory(pid)

    def link(self, path: str) -> None:
        with contextlib.suppress(OSError):
            self.look_at_text(os.readlink(path), path)

    def descriptors(self, pid: int) -> None:
        """The name of each open descriptor and, if it can be reopened or duplicated, its content."""
        for name in _names(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{name}"
            self.link(path)
            with contextlib.suppress(OSError):
                if stat.S_ISREG(os.stat(path).st_mode) or (
                    stat.S_ISFIFO(os.stat(path).st_mode) and int(name) > 2
                ):
                    self.file(path)

    def memory(self, pid: int) -> None:
        """Every readable page: inherited memory of a fork is there, with or without a name."""
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
            regions = [line.split(None, 5) for line in maps]
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                for region in regions:
                    if region[1].startswith(b"r"):
                        start, end = (int(part, 16) for part in region[0].split(b"-"))
                        self.region(memory.fileno(), start, end, f"/proc/{pid}/mem")

    def region(self, memory: int, start: int, end: int, where: str) -> None:
        for position in range(start, end, BLOCK):
            with contextlib.suppress(OSError, OverflowError):
                self.look(os.pread(memory, min(BLOCK + OVERLAP, end - position), position), where)

    def files(self, known: Iterable[str]) -> None:
        """Every name that can be listed, every recent file that can be read, every known path."""
        for path in known:
            self.file(path)
            self.tree(path)
        self.tree(os.getcwd())
        self.tree(tempfile.gettempdir())
        if WALLED:
            self.tree("/")

    def tree(self, top: str) -> None:
        for folder, folders, names in os.walk(top):
            inner = [(name, os.path.join(folder, name)) for name in folders]
            folders[:] = [name for name, path in inner if path not in SKIPPED | INSTALLED]
            self.look_at_text([*folders, *names], folder)
            for name in names:
                self.recent(os.path.join(folder, name))

    def recent(self, path: str) -> None:
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_mtime > RECENT:
                self.file(path)

    def system(self) -> None:
        """Information that the kernel gives to every process: sockets, keys, shared memory."""
        for path in ("/proc/net/unix", "/proc/self/net/unix", "/proc/keys", "/proc/key-users", "/proc/mounts",
                     "/proc/sysvipc/shm", "/proc/cmdline", "/proc/sys/kernel/hostname"):  # fmt: skip
            self.file(path)

    def keyring(self, description: str) -> None:
        """The payload of a key in the session's or the user's keyrings, by its known description."""
        call = ctypes.CDLL(None).syscall
        payload = ctypes.create_string_buffer(200)
        for ring in (-3, -4, -5):
            key = call(KEYCTL, SEARCH_KEY, ring, b"user", description.encode(), 0)
            if key > 0 and call(KEYCTL, READ_KEY, key, payload, 200, 0) > 0:
                self.look(payload.value, "keyctl")

    def error(self, raised: BaseException) -> None:
        """Everything reachable from an exception: causes, notes, frames with their locals, file names."""
        import traceback

        self.look_at_text("".join(traceback.format_exception(raised)), "traceback")
        self.look_at_text([vars(raised), raised.args, raised.__cause__, raised.__context__], "exception")
        trace = raised.__traceback__
        while trace is not None:
            self.look_at_text([trace.tb_frame.f_code.co_filename, trace.tb_frame.f_locals], "frame")
            trace = trace.tb_next

    def modules(self) -> None:
        for name, module in list(sys.modules.items()):
            self.look_at_text(
                [name, getattr(module, "__file__", ""), getattr(module, "__path__", "")], "modules"
            )


def _names(folder: str) -> Iterator[str]:
    try:
        yield from os.listdir(folder)
    except OSError:
        return
