"""An isolation level: what a zygote and the processes of a jail do at each stage to put up its walls.

A wall that cannot be built raises a WallError: which step failed, and what the kernel said.
"""

from __future__ import annotations

import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cenote_security.policy import Mount, SandboxPolicy


class WallError(Exception):
    """One step of building a jail failed; the jail was not started.

    step: what was being done, such as `unshare namespaces`. code: the errno, 0 when there was none.
    detail: the kernel's words and the call.
    """

    def __init__(self, step: str, code: int, detail: str) -> None:
        super().__init__(step, code, detail)
        self.step = step
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        name = f" [{errno.errorcode.get(self.code, self.code)}]" if self.code else ""
        return f"{self.step}: {self.detail}{name}"


class building:
    """Turn an OSError inside a `with` block into a WallError that names the step.

    A plain class: a generator based context manager runs through enough of contextlib to cost each jail some pages.
    """

    __slots__ = ("_step",)

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            where = f" ({error.filename})" if error.filename else ""
            raise WallError(self._step, error.errno or 0, f"{error.strerror or error}{where}") from error


LevelName = Literal["strict", "landlock", "gvisor", "none"]
"""An isolation that is in force, as opposed to one asked for, which may be `auto`."""


@dataclass(frozen=True, kw_only=True)
class JailAllowance:
    """What one jail may use. number: unique per zygote.

    seat: a small number that no other living jail of the zygote has; see UserIds. memory: bytes, with those that it
    begins with. policy: without what only its client needs. egress: whether it has a way to a proxy outside.
    """

    number: int
    seat: int
    memory: int
    policy: SandboxPolicy
    egress: bool = False


@dataclass(frozen=True, kw_only=True)
class Home:
    """The folders of a jail, as its processes see them: current directory and `HOME`, and `TMPDIR`."""

    workdir: str
    temporary: str


class Level(ABC):
    """The stages, in the order in which they happen; each in a process further in. All raise WallError.

    ends_with_warden: whether the kernel ends all processes of a jail with its warden, the first of a pid namespace.
    holds_signals: whether a signal of the warden's reaches the processes of its jail and no others.
    forks_siblings: whether a process can begin one that is its parent's child.
    own_kernel: whether a jail has a kernel of its own, in which its processes are started, not forked: see `command`.
    own_memory, own_tasks: bytes, and processes and threads, that the walls themselves take beside the jail's.
    tasks_each: how many tasks of the host's kernel one of the jail's stands for.
    worker_rules: a descriptor that `fence_worker` needs, -1 for none. Code that renumbers it updates this field.
    last_pid: the warden's, of a file that has the number of the latest process of the jail, and takes another; -1
    where the jail has no numbers of its own, or they cannot be chosen.
    """

    name: LevelName
    ends_with_warden: bool
    holds_signals: bool = False
    own_kernel: bool = False
    forks_siblings: bool = True
    own_memory: int = 0
    own_tasks: int = 0
    tasks_each: int = 1
    worker_rules: int = -1
    last_pid: int = -1

    @abstractmethod
    def prepare(self, visible: Sequence[str], mounts: Sequence[Mount]) -> None:
        """Once, in the zygote, before it imports anything of the user's."""

    @abstractmethod
    def home(self, number: int) -> Home:
        """Where a jail will live. Pure."""

    @abstractmethod
    def enter(self, allowance: JailAllowance) -> None:
        """In a process forked from the zygote, before it forks the warden."""

    def listen(self) -> socket.socket:
        """In the process that entered: a listening socket that only this jail can connect to."""
        raise WallError(
            "open the jail's way to its proxy", 0, f"isolation {self.name!r} has no network namespace"
        )

    @abstractmethod
    def settle(self, allowance: JailAllowance) -> None:
        """In the warden: make the jail's folders, set its limits, stand in the working directory."""

    def command(self, _allowance: JailAllowance, _module: str, _environment: Mapping[str, str]) -> list[str]:
        """After `settle`: the command line that becomes the jail, where that has a kernel of its own.

        In it a fresh interpreter calls `run()` of a module, with the standard streams of the process that becomes it.
        """
        raise WallError("start the jail's kernel", 0, f"isolation {self.name!r} has none of its own")

    @abstractmethod
    def fence_warden(self) -> None:
        """In the warden, before it forks the worker: walls that both have."""

    def fence_attendant(self) -> None:  # noqa: B027  (most levels have nothing to do)
        """In a process that the warden forks to begin a program, before it does: where signals of one domain reach no
        other, a domain of its own, in which it can do what the warden can.
        """

    @abstractmethod
    def fence_worker(self) -> None:
        """In the worker, before it becomes the namespace: walls that keep it off the warden."""

    @abstractmethod
    def clean_up(self, number: int) -> None:
        """In the zygote, when all processes of a jail are gone: remove what it left outside."""

    @abstractmethod
    def close(self) -> None:
        """In the zygote, at its end: remove what it made outside itself."""
