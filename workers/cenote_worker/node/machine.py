"""The machine that a node runs on: its folder there, which gives its name, the ends of processes, the processors.

Ray gives each raylet a name of its own, also one that is started where another has died. The jails and values of the
dead one's node are still there, in the descriptor store. So a node is not a raylet. Its name is its folder's, and an
agent that starts beside the folder of a node without a living raylet continues that node.
"""

from __future__ import annotations

import fcntl
import os
import select
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Final, Self

from cenote_security.errors import UnavailableError
from cenote_worker.descriptor_store.client import DescriptorStoreClient, check_private

PREFIX: Final = "node-"
_CARRIER: Final = "raylet"
_LOCK: Final = "nodes.lock"
_DRAINING: Final = "draining"

SHORT: Final = 8
"""Characters of a raylet's id that distinguish those of one cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """The raylet that carries a node. began: in the kernel's count of ticks, so that no other process is mistaken for
    it. space: its pid namespace; its pid means nothing elsewhere.
    """

    raylet: str
    pid: int
    began: str
    space: str

    @classmethod
    def of_this_process(cls, raylet: str) -> Self:
        """For an agent, whose parent is the raylet. raylet: its id."""
        pid = os.getppid()
        return cls(raylet=raylet, pid=pid, began=_began(pid), space=_space())

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        with suppress(OSError, ValueError):
            raylet, pid, began, space = (folder / _CARRIER).read_text().split()
            return cls(raylet=raylet, pid=int(pid), began=began, space=space)
        return None

    def write(self, folder: Path) -> None:
        (folder / _CARRIER).write_text(f"{self.raylet} {self.pid} {self.began} {self.space}")

    @property
    def dead(self) -> bool:
        """True only if certain: a raylet that cannot be seen from here may live."""
        return self.space == _space() and _began(self.pid) != self.began


class DrainMark:
    """Whether a node is being drained, in a file of its folder: its agent may be killed and started again meanwhile.

    Thread-safe. folder: of the node.

    The file names the node's raylet. Once Ray was started again on the machine, which is what a drain is for, the
    node takes runtimes again.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _DRAINING
        carrier = Carrier.read(folder)
        self._raylet = "" if carrier is None else carrier.raylet  # none in a cluster of the platform's own
        self._lock = threading.Lock()
        self._set = self._path.exists() and self._path.read_text() == self._raylet

    @property
    def is_set(self) -> bool:
        return self._set

    def set(self, wanted: bool) -> None:
        """Raises UnavailableError where the folder cannot be written: then nothing has changed."""
        with self._lock:
            if wanted == self._set:
                return
            try:
                if wanted:
                    self._path.write_text(self._raylet)
                else:
                    self._path.unlink(missing_ok=True)
            except OSError as error:
                raise UnavailableError(f"the machine cannot note that it is drained: {error}") from error
            self._set = wanted


def node_of(folder: Path) -> str:
    return folder.name.removeprefix(PREFIX)


def settle(root: Path, carrier: Carrier) -> Path:
    """The folder of the node that a raylet carries, already or from now on. root: of one platform, on this machine.

    Raises UsageError when the root is not this user's alone.
    """
    with _alone(root):
        carried = {folder: Carrier.read(folder) for folder in sorted(root.glob(f"{PREFIX}*"))}
        mine = [folder for folder, by in carried.items() if by is not None and by.raylet == carrier.raylet]
        left = [folder for folder, by in carried.items() if by is not None and by.dead and _is_kept(folder)]
        folder = (mine or left or [root / f"{PREFIX}{carrier.raylet[:SHORT]}"])[0]
        folder.mkdir(mode=0o700, exist_ok=True)
        carrier.write(folder)
    return folder


def clear(root: Path) -> None:
    """Ends what is left of this machine's nodes without a living raylet: their jails, values and folders."""
    with suppress(FileNotFoundError), _alone(root):
        for folder in root.glob(f"{PREFIX}*"):
            carrier = Carrier.read(folder)
            if carrier is not None and carrier.dead:
                DescriptorStoreClient(folder).shut_down()
                rmtree(folder, ignore_errors=True)


def vacate(folder: Path, *, with_root: bool) -> None:
    """Removes a node's folder, and the root with the last one, if that was made for nodes alone."""
    rmtree(folder, ignore_errors=True)
    if not with_root:
        return
    root = folder.parent
    with suppress(OSError), _alone(root):
        if not any(root.glob(f"{PREFIX}*")):
            rmtree(root, ignore_errors=True)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Locks out other agents of this machine."""
    root.mkdir(mode=0o700, exist_ok=True)
    check_private(root)
    lock = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _is_kept(folder: Path) -> bool:
    """Whether its descriptor store still runs."""
    client = DescriptorStoreClient(folder)
    try:
        client.keys("runtime/")
    except UnavailableError:
        return False
    finally:
        client.close()
    return True


def _began(pid: int) -> str:
    """When a process began; empty when it has ended, reaped or not."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[19] if fields[0] not in "ZX" else ""
    return ""


def _space() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


@contextmanager
def awaited_end(pids: Collection[int], patience: float) -> Iterator[None]:
    """Processes are killed inside. On leaving they are gone, or that many seconds have passed."""
    with ExitStack() as opened:
        waited_for = []
        for pid in pids:
            with suppress(ProcessLookupError):  # it is gone already
                waited_for.append(os.pidfd_open(pid))  # now: its pid may be reused later
                opened.callback(os.close, waited_for[-1])
        yield
        until = time.monotonic() + patience
        for process in waited_for:
            select.select([process], [], [], max(until - time.monotonic(), 0.0))


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def idle_seconds() -> float:
    """Idle time of all processors together since the machine's start."""
    return float(Path("/proc/uptime").read_text().split()[1])
