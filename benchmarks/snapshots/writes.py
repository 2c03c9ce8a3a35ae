"""CPU time of cells that write in place, with snapshots and without, and whether the state before them was kept.

    python -m benchmarks.snapshots.writes [REPEATS [TEXT]]

TEXT: only cells that contain it. Between the cell that makes the data and the one that writes, the runtime is idle,
as while a model generates; grown memory is moved to huge pages then. Each run has its own runtime and data, and the
minimum of each kind counts: wall time is unreliable on a busy machine, where the process that gives copies up waits
for a processor. Run it as root.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Literal

from benchmarks.jail.cpu_clock import clock_of
from benchmarks.snapshots.cells import WRITING
from benchmarks.snapshots.pages import worker_of
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

REST = 0.3
"""Seconds; on a busy machine it may have waited long for a processor."""

END = "\ncpu_seconds = __import__('time').process_time()"


def measure(setup: str, code: str, snapshots: Literal["auto", "none"]) -> tuple[float, str]:
    """CPU seconds of the worker from the request to the cell's end, and why the state before it was not kept."""
    with PythonRuntime(sandbox=SandboxPolicy(snapshots=snapshots, memory="8GiB")) as runtime:
        assert runtime.execute(setup).success
        worker = clock_of(worker_of(os.getpid()))
        if snapshots == "auto":
            await_rest(worker)
            runtime.snapshot()  # this is waited for
        begin = time.clock_gettime(worker)
        result = runtime.execute(code + END)
        assert result.success
        return float(runtime.retrieve("cpu_seconds")) - begin, result.unkept


def await_rest(worker: int) -> None:
    """Waits until a process has been idle for a while. worker: its clock."""
    before = -1.0
    while before < (now := time.clock_gettime(worker)):
        before = now
        time.sleep(REST)


def main(repeats: int, text: str) -> None:
    for setup, code in WRITING:
        if text not in code:
            continue
        without = min(measure(setup, code, "none")[0] for _ in range(repeats))
        taxed = [measure(setup, code, "auto") for _ in range(repeats)]
        least = min(seconds for seconds, _ in taxed)
        kept = sum(not unkept for _, unkept in taxed)
        told = (
            f"{without * 1e3:7.1f} -> {least * 1e3:7.1f} ms  {least / without:5.2f}x  kept {kept}/{repeats}"
        )
        print(f"{told}  {code!r}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, sys.argv[2] if len(sys.argv) > 2 else "")
