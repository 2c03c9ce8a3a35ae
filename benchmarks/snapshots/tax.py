"""Cost of a snapshot for a cell that writes a lot: without one, with one, and with one that is given up in time.

    python -m benchmarks.snapshots.tax [REPEATS]

Each measurement is a separate process: it makes its data, forks a copy that only waits, and does its work, measured
in its own CPU time, while a governor checks it each millisecond as a jail's supervisor does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from cenote_worker.zygote.warden.snapshot_cost_monitor import ProcessSample, SnapshotTax, sharing

Mode = Literal["no snapshot", "kept", "governed"]
Work = Callable[[], object]

PAUSE = 0.001
PR_SET_PDEATHSIG = 1


def sweep_1_gb() -> Work:
    import numpy as np

    array = np.ones(2**27)
    return lambda: np.add(array, 1, out=array)


def sweep_100_mb_ten_times() -> Work:
    import numpy as np

    array = np.ones(100 * 2**17)
    return lambda: [np.add(array, 1, out=array) for _ in range(10)]


def touch_1e6_objects() -> Work:
    objects = [[number] for number in range(1_000_000)]
    return lambda: sum(len(one) for one in objects)


def frames_of_50_mb() -> Work:
    """Allocates and frees much memory and changes nothing in place; the snapshot should survive this."""
    import numpy as np
    import pandas as pd

    frame = pd.DataFrame(np.random.default_rng(0).random((650_000, 10)))
    return lambda: [(frame * 2 + 1).groupby((frame[0] * 10).astype(int)).mean() for _ in range(5)]


WORKS = (sweep_1_gb, sweep_100_mb_ten_times, touch_1e6_objects, frames_of_50_mb)


def measure(make: Callable[[], Work], mode: Mode) -> tuple[float, bool]:
    """CPU seconds of the work, and whether the snapshot was kept."""
    read, write = os.pipe()
    live = os.fork()
    if live == 0:
        os.setpgid(0, 0)
        end_with_parent()
        _live(make(), mode, write)
    os.close(write)
    with open(read) as lines:
        copy = int(lines.readline())
        kept = _govern(live, copy) if mode == "governed" else True
        seconds = float(lines.readline())
    with suppress(ProcessLookupError):
        os.killpg(live, signal.SIGKILL)
    os.waitpid(live, 0)
    return seconds, kept and mode != "no snapshot"


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _live(work: Work, mode: Mode, pipe: int) -> None:
    import gc

    gc.collect()
    gc.freeze()
    copy = 0 if mode == "no snapshot" else os.fork()
    if copy == 0 and mode != "no snapshot":
        end_with_parent()
        signal.pause()
    os.write(pipe, f"{copy}\n".encode())
    time.sleep(5 * PAUSE)
    begin = time.process_time()
    work()
    os.write(pipe, f"{time.process_time() - begin}\n".encode())
    signal.pause()


def _govern(live: int, copy: int) -> bool:
    """Waits until the process has done its work and waits for its end."""
    begin = time.monotonic() - _waited(live)
    tax = SnapshotTax(_sample(live, 0.0))
    while not _is_waiting(live):
        time.sleep(PAUSE)
        sample = _sample(live, time.monotonic() - _waited(live) - begin)
        if tax.see(sample) == "check" and tax.is_too_much(sharing(live, copy)):
            os.kill(copy, signal.SIGKILL)
            return False
    return True


def _sample(pid: int, elapsed: float) -> ProcessSample:
    faults = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])
    _size, resident, of_files, *_rest = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    return ProcessSample(elapsed=elapsed, faults=faults, resident=resident - of_files)


def _waited(pid: int) -> float:
    """Seconds for which it was runnable but had no processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def _is_waiting(pid: int) -> bool:
    return "pause" in Path(f"/proc/{pid}/wchan").read_text()


def main(repeats: int) -> None:
    modes: tuple[Mode, ...] = ("no snapshot", "kept", "governed")
    for make in WORKS:
        plain = 0.0
        for mode in modes:
            runs = [measure(make, mode) for _ in range(repeats)]
            seconds = statistics.median(seconds for seconds, _ in runs)
            plain = plain or seconds
            kept = sum(kept for _, kept in runs)
            ratio = f"{seconds * 1e3:8.0f} ms  {seconds / plain:5.2f}x"
            print(f"{make.__name__:24} {mode:12} {ratio}  kept {kept}/{repeats}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
