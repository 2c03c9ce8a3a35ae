"""Things outside a jail that an escape would touch: files, listeners, a process. They show whether one did."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import select
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_WATCHED: Final = ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname")
_EPHEMERAL_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PORTS: Final[Sequence[int]] = range(61_000, 65_536)
"""Ports that listeners choose from: above those of common services and Linux's default ephemeral range."""

_TRIES: Final = 100
_BUSY: Final = ("R", "D")
"""States of a process that is about to be in another one: one that only sleeps runs when a signal has come."""

_LOOKS: Final = 1000
"""A millisecond apart, for as long as it is busy."""


class Witnesses:
    """Folders open to all, one with a secret in it, listeners of each kind, and a process that only sleeps.

    secret: what no output of a jail may contain. shown: a folder to mount read-only into the jail.
    """

    def __init__(self) -> None:
        base = _folder_open_to_all()
        self.secret = secrets.token_hex(16)
        self.folder = Path(tempfile.mkdtemp(prefix="cenote-witness-", dir=base))
        self.shown = Path(tempfile.mkdtemp(prefix="cenote-shown-", dir=base))
        self._fill_folder()
        self._listeners = self._listen()
        sleep = shutil.which("sleep") or "/bin/sleep"
        # A signal that is ignored by default does no harm, and where it is blocked it stays pending.
        self.bystander = os.posix_spawn(sleep, [sleep, "100000"], {}, setsigmask=[signal.SIGURG])
        self._before = self._look()

    def _fill_folder(self) -> None:
        self.folder.chmod(0o777)
        self.shown.chmod(0o777)
        for path, text in ((self.folder / "secret", self.secret), (self.shown / "text", "as it was" * 100)):
            path.write_text(text)
            path.chmod(0o666)

    def _listen(self) -> list[socket.socket]:
        tcp, udp = _on_a_port_aside(socket.SOCK_STREAM), _on_a_port_aside(socket.SOCK_DGRAM)
        path, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        path.bind(str(self.folder / "socket"))
        (self.folder / "socket").chmod(0o777)
        abstract.bind(f"\0cenote-witness-{self.secret[:8]}")
        for one in (tcp, path, abstract):
            one.listen()
        return [tcp, udp, path, abstract]

    def facts(self) -> dict[str, str | int]:
        """The facts that an attacker gets: see `World`."""
        tcp, udp, path, abstract = self._listeners
        return {
            "folder": str(self.folder),
            "secret": str(self.folder / "secret"),
            "shown": str(self.shown / "text"),
            "home": os.path.expanduser("~"),  # noqa: PTH111  (as text, for the attacker)
            "socket": path.getsockname(),
            "abstract": abstract.getsockname()[1:].decode(),
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "client": os.getpid(),
            "bystander": self.bystander,
        }

    def breaches(self, said: str) -> list[str]:
        """What has gone through the walls since the last time, empty when they held. said: all output of the jail."""
        found = [f"{name} was reached" for name in self._reached()]
        if self.secret in said:
            found.append("the secret was read")
        after = self._look()
        found += [
            f"{name} changed"
            for name in sorted(self._before.keys() | after.keys())
            if self._differs(name, after)
        ]
        self._before = after
        return found

    def _reached(self) -> list[str]:
        """Names of the listeners that something arrived at, which is taken off them."""
        reached = []
        for listener in select.select(self._listeners, [], [], 0)[0]:
            reached.append(f"a listener of kind {listener.family.name} {listener.type.name}")
            if listener.type == socket.SOCK_DGRAM:
                listener.recv(65536)
            else:
                listener.accept()[0].close()
        return reached

    def _differs(self, name: str, after: dict[str, object]) -> bool:
        return self._before.get(name) != after.get(name)

    def _look(self) -> dict[str, object]:
        """Everything that must stay as it is, by name."""
        seen: dict[str, object] = {str(path): _print_of(path) for path in self._paths()}
        for name in _WATCHED:
            with suppress(OSError):
                seen[name] = Path(name).read_text()
        seen["the bystander"] = _condition(self.bystander)
        return seen

    def _paths(self) -> list[Path]:
        return [path for top in (self.folder, self.shown) for path in (top, *top.rglob("*"))]

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        with suppress(ProcessLookupError):
            os.kill(self.bystander, signal.SIGKILL)
        os.waitpid(self.bystander, 0)
        for folder in (self.folder, self.shown):
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _folder_open_to_all() -> str:
    """Where to make folders: no permission on the way should keep a jail out, so that the walls are what is tested.

    A private folder for temporary files will not do.
    """
    for folder in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if os.access(folder, os.W_OK) and all(
            one.stat().st_mode & stat.S_IXOTH for one in (folder, *folder.parents)
        ):
            return str(folder)
    return tempfile.gettempdir()


def _on_a_port_aside(kind: socket.SocketKind) -> socket.socket:
    """A socket of 127.0.0.1 on a port outside the kernel's ephemeral range, if there is one.

    Clients go on connecting to the port of a server that has ended: a listener that got this port next would take
    them for an escape.
    """
    ephemeral = _ephemeral_ports()
    aside = [port for port in _PORTS if port not in ephemeral] or [0]
    for _ in range(_TRIES):
        found = socket.socket(socket.AF_INET, kind)
        try:
            found.bind(("127.0.0.1", secrets.choice(aside)))
        except OSError as error:
            found.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return found
    raise OSError(errno.EADDRINUSE, "no port is free to listen on")


def _ephemeral_ports() -> range:
    """Ports that the kernel assigns to programs that do not name one."""
    try:
        first, last = map(int, _EPHEMERAL_PORTS.read_text().split())
    except OSError:
        return range(0)
    return range(first, last + 1)


def _print_of(path: Path) -> tuple[object, ...]:
    """What a jail must not change of a file. Times are left out: any process that can name a world-writable file
    can set its times to now, and Landlock does not cover that."""
    status = path.lstat()
    is_file = stat.S_ISREG(status.st_mode)
    content = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
    attributes = tuple(os.listxattr(path, follow_symlinks=False))
    return status.st_mode, status.st_uid, status.st_gid, status.st_nlink, status.st_size, content, attributes


def _condition(pid: int) -> tuple[str, ...]:
    """The state of a process that only sleeps, and which signals wait for it; empty when it is gone."""
    found: tuple[str, ...] = ()
    for _ in range(_LOOKS):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            return ()
        status = {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}
        found = status["State"][0], status["SigPnd"], status["ShdPnd"]
        if found[0] not in _BUSY:
            break
        time.sleep(0.001)
    return found
