"""What cells take with snapshots and without, as their client sees it: median milliseconds.

    python -m benchmarks.snapshots.cells [REPEATS]

Each cell follows the one before at once, so that it waits for the copy that is made behind that one's answer.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Literal

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

CELLS = (
    ("nothing", "x = 1"),
    ("a file written", "open('a', 'w').write('b' * 1000)"),
    ("1e6 calls", "for _ in range(10**6): len(())"),
    ("a dictionary of 100,000 keys", "d = dict.fromkeys(range(100_000), 1)"),
    ("50 MB made anew", "import numpy as np; a = np.ones(50 * 2**17)"),
    ("1 MB of it changed in place", "a[: 2**17] += 1"),
)


def median(runtime: PythonRuntime, code: str, repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        result = runtime.execute(code)
        taken.append((time.perf_counter() - begun) * 1e3)
        assert result.success, result.error
    return statistics.median(taken)


def measure(snapshots: Literal["auto", "none"], repeats: int) -> list[float]:
    with PythonRuntime(sandbox=SandboxPolicy(snapshots=snapshots)) as runtime:
        runtime.execute("x = 0")
        return [median(runtime, code, repeats) for _, code in CELLS]


def main(repeats: int) -> None:
    without, having = measure("none", repeats), measure("auto", repeats)
    for (name, _), plain, kept in zip(CELLS, without, having, strict=True):
        print(f"{name:30} {plain:8.1f} ms without  {kept:8.1f} ms with")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
