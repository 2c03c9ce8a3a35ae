"""Other processes, as the kernel shows them."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.waiting import PATIENCE

CHOOSES_NUMBERS = 1 << 40
"""CAP_CHECKPOINT_RESTORE: permits choosing the number of the next process of a pid namespace."""


def everyone() -> list[int]:
    """Pids of the processes that the machine runs now. Each may have ended when it is inspected."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def title(pid: int) -> str:
    """Its command line, empty when it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def kill(*pids: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Kills all at once, and returns when they are gone. One that has ended already counts as killed: the end of
    one may cause that of another.
    """
    handles = []
    for pid in pids:
        with suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
    # This process may be delayed in between, and the remaining processes would react to the deaths.
    for number in (signal.SIGSTOP, how) if len(handles) > 1 and how is signal.SIGKILL else (how,):
        for handle in handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
    for handle in handles:
        assert select.select([handle], [], [], PATIENCE)[0]
        os.close(handle)


def runs(pid: int) -> bool:
    """Whether a process runs. A zombie counts as gone, since nothing of it runs."""
    return state_of(pid) not in ("Z", "X", "")


def state_of(pid: int) -> str:
    """The letter of a process's state, empty when there is no such process."""
    return next(iter(_stat(pid)), "")


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def session_of(pid: int) -> int | None:
    """None for a process that has ended."""
    return int(fields[3]) if (fields := _stat(pid)) else None


def _stat(pid: int) -> list[str]:
    """The fields after its name, which may contain any characters."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def status_of(pid: int) -> Mapping[str, str]:
    """Fields of `/proc/PID/status`, empty when the process has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}
    return {}


def children_of(pid: int) -> list[int]:
    """Children of all its threads, the oldest of each first; none of a process that has ended."""
    children: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda each: int(each.name)):
            children += [int(child) for child in (thread / "children").read_text().split()]
    return children


def kernel_kills() -> int:
    """Number of kills for lack of memory on the whole machine, where other tests run out of it."""
    counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(counts.get("oom_kill", 0))


def tree_of(pid: int) -> list[int]:
    """A process and all its descendants."""
    return [pid, *(deeper for child in children_of(pid) for deeper in tree_of(child))]
