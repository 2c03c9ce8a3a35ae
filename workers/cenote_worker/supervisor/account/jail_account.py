"""Measures a jail's use and enforces the limits of the jail as a whole. Nothing here relies on the jail's reports."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cenote_worker.supervisor.exit_reason import JailExit

MIB = 2**20

_NEAR = 4
"""The part of the limit that is left when a jail counts as near it: one in this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUsage:
    """The use of one cell, as in `CellUsage`.

    killed: processes that the kernel ended for memory while the jail lives on.
    crowded: the jail came near its limit.
    """

    cpu: float
    peak_memory: int
    bytes_written: int
    killed: int = 0
    crowded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageBaseline:
    """The counters of a jail when a cell began. cpu: seconds. written: bytes. kills: see MeasuredUsage."""

    cpu: float = 0.0
    written: int = 0
    kills: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """policy: bytes of the policy. base: bytes shared with the zygote, which the jail may come to own by writing."""

    policy: int
    base: int

    @property
    def total(self) -> int:
        return self.policy + self.base

    def is_near(self, used: int) -> bool:
        """Whether a cell that changes much could reach the limit because of the memory of older snapshots."""
        return used > self.total - self.total // _NEAR

    def against(self, used: int) -> str:
        """`used 297 MiB of 296 MiB (...)`."""
        return (
            f"used {used / MIB:.0f} MiB of {self.total / MIB:.0f} MiB "
            f"({self.policy / MIB:.0f} MiB by policy, {self.base / MIB:.0f} MiB that it began with)"
        )


class JailAccount(Protocol):
    """The account of one jail. `begin` and `spent` come in pairs, under the supervisor's lock, and must be cheap."""

    @property
    def mode(self) -> str:
        """`cgroup v1`, `cgroup v2` or `watchdog`."""

    def begin(self) -> UsageBaseline:
        """A cell is about to be sent."""

    def resume(self, begun: UsageBaseline) -> None:
        """A cell is running that began when another process had this account."""

    def spent(self) -> MeasuredUsage:
        """The cell has ended."""

    def explain(self, found: JailExit) -> JailExit:
        """What is known of the jail's end beyond its warden's report, which comes from inside the jail."""

    def watch(self, condemn: EndJail) -> None:
        """Begins to enforce the limits that the kernel does not enforce by itself."""

    def follow(self, pid: int) -> None:
        """Another process is the jail's worker now. pid: as the jail sees it."""

    def sparing(self, inode: int) -> AbstractContextManager[None]:
        """While the context is open, the jail has a memory file open that does not count against it."""

    def close(self) -> None:
        """The jail has ended, or is about to."""

    def let_go(self) -> None:
        """Another process has the jail's account from now on; the jail lives on."""


class EndJail(Protocol):
    """Ends a jail; may be called from any thread."""

    def __call__(self, death: JailExit, /) -> None: ...
