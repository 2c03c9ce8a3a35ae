"""Cost of a cell and of the copy after it for the worker: CPU time, and pages that it was the first to write to.

    python -m benchmarks.snapshots.pages [REPEATS]

Unlike wall time, both are reliable on a busy machine: pages exactly, CPU time by its minimum. Run it as root, which
is needed to look into jails.
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path
from typing import Literal

from benchmarks.snapshots.cells import CELLS
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy


def worker_of(client: int) -> int:
    """client -> zygote -> supervisor of its newest jail -> worker, which is older than its copies."""
    zygote = _children(client)[0]
    return _children(_children(zygote)[-1])[0]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def spent(pid: int) -> tuple[float, int]:
    """CPU milliseconds and page faults of a process so far."""
    seconds = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6
    return seconds, int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def measure(runtime: PythonRuntime, code: str, repeats: int) -> tuple[float, float]:
    worker = worker_of(os.getpid())
    taken, faults = list[float](), list[int]()
    for _ in range(repeats):
        before = spent(worker)
        assert runtime.execute(code).success
        after = spent(worker)
        taken.append(after[0] - before[0])
        faults.append(after[1] - before[1])
    return min(taken), statistics.median(faults)


def main(repeats: int) -> None:
    kinds: tuple[Literal["auto", "none"], ...] = ("none", "auto")
    for snapshots in kinds:
        with PythonRuntime(sandbox=SandboxPolicy(snapshots=snapshots)) as runtime:
            runtime.execute("x = 0")
            for name, code in CELLS:
                least, faults = measure(runtime, code, repeats)
                print(
                    f"snapshots {snapshots:5} {name:20} {least:7.2f} ms CPU {faults:6.0f} pages", flush=True
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
