"""CPU seconds and bytes of checkpoints and restores: `python -m benchmarks.checkpoints [MEGABYTES]`.

A frame of random numbers, of which a tenth of the columns is made anew between two checkpoints; then a restore, until
a cell has read the frame's corner; then what a durable runtime adds to a trivial cell. CPU is that of this process,
of the namespace's process and of its frozen copies together.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

Result = TypeVar("Result")

COLUMNS = 100
CPU = "import resource as _r; sum(_r.getrusage(w).ru_utime + _r.getrusage(w).ru_stime for w in (0, -1))"


def jail_cpu(runtime: PythonRuntime) -> float:
    """CPU seconds of the namespace's process and of the copies that it has taken note of."""
    runtime.execute("0")  # the end of a cell is when it looks for copies that have ended
    return float(runtime.execute(CPU).value or 0)


def measured(runtime: PythonRuntime, work: Callable[[], Result]) -> tuple[Result, float, float]:
    """What the work gives, its CPU and its wall seconds."""
    jail, here, began = jail_cpu(runtime), time.process_time(), time.monotonic()
    result = work()
    wall, here = time.monotonic() - began, time.process_time() - here
    return result, here + jail_cpu(runtime) - jail, wall


def main(megabytes: int) -> None:
    sandbox = SandboxPolicy(memory=f"{4 * megabytes + 1024}MiB")
    rows = megabytes * 2**20 // 8 // COLUMNS
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as store:
        with PythonRuntime(store=store, name="bench", sandbox=sandbox) as runtime:
            runtime.execute("import numpy as np, pandas as pd; rng = np.random.default_rng(0)")
            runtime.execute(f"df = pd.DataFrame(rng.random(({COLUMNS}, {rows})).T)")
            report("first checkpoint", *measured(runtime, runtime.checkpoint))
            report("again, nothing changed", *measured(runtime, runtime.checkpoint))
            changed = runtime.execute(f"for c in range({COLUMNS // 10}): df.iloc[:, c] = rng.random({rows})")
            assert changed.success, changed.error
            report("after a tenth changed", *measured(runtime, runtime.checkpoint))
        here, began = time.process_time(), time.monotonic()
        with PythonRuntime.restore(store, "bench", sandbox=sandbox) as runtime:
            corner = runtime.execute("float(df.iloc[0, 0])")
            assert corner.success, corner.error
            wall, here = time.monotonic() - began, time.process_time() - here
            print(f"restore: {here + jail_cpu(runtime):.3f} CPU-s, {wall:.3f} s")
        cells(store)


def report(what: str, info: object, cpu: float, wall: float) -> None:
    print(f"{what}: {cpu:.3f} CPU-s, {wall:.3f} s, {getattr(info, 'stored', 0) / 1e6:.1f} MB written")


def cells(store: str) -> None:
    """A trivial cell, without and with durability."""
    for durable in (False, True):
        with PythonRuntime(store=store, name=f"cells {durable}", durable=durable) as runtime:
            runtime.execute("x = 0")
            walls = []
            for _ in range(50):
                began = time.monotonic()
                runtime.execute("x += 1")
                walls.append(time.monotonic() - began)
            print(f"trivial cell, durable={durable}: {sorted(walls)[25] * 1000:.2f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
