"""A program: computes with a library, forks as a snapshot does, and computes in all resulting processes.

    python copies.py LIBRARY FORK SECONDS

Prints one JSON object: `reasons`, why the fork was refused; `right`, by process, whether the result was the same
again, or `null` when there was none in time. It forks in spite of reasons, to see their effects.
"""

from __future__ import annotations

import asyncio
import ctypes
import io
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from cenote_worker.jail.forking.fork_safety import ForkSafety
from cenote_worker.jail.libraries.duckdb_threads import THREADS
from cenote_worker.jail.tracking.libraries import duckdb_connections

PATIENCE = float(sys.argv[3])
PR_SET_PDEATHSIG = 1
HELD: dict[str, Any] = {}


def numpy() -> object:
    import numpy as np

    matrix = np.arange(360_000, dtype=float).reshape(600, 600) / 1e6
    return float((matrix @ matrix).sum())


def sklearn() -> object:
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingRegressor

    features = np.random.RandomState(0).rand(3000, 5)
    model = HistGradientBoostingRegressor(max_iter=2, random_state=0).fit(features, features.sum(axis=1))
    return round(float(model.predict(features).sum()), 6)


def pyarrow() -> object:
    import pyarrow as pa

    table = pa.table({"a": range(100_000), "b": [i % 10 for i in range(100_000)]})
    return sum(table.group_by("b", use_threads=True).aggregate([("a", "sum")]).column("a_sum").to_pylist())


def tqdm() -> object:
    from tqdm import tqdm

    return sum(tqdm(range(10), file=io.StringIO()))


def polars() -> object:
    import polars as pl

    frame = pl.DataFrame({"a": range(100_000)}).with_columns(b=pl.col("a") % 10)
    return int(frame.lazy().group_by("b").agg(pl.col("a").sum()).collect()["a"].sum())


def duckdb(file: str = ":memory:") -> object:
    """Returns the number of threads, too: the result of a query is independent of it."""
    import duckdb

    duckdb_connections.handlers(duckdb)
    THREADS.begin_again()
    if "connection" not in HELD:
        duckdb.set_default_connection(duckdb.connect(file))
    connection = HELD.setdefault("connection", duckdb.default_connection())
    total = connection.execute("select sum(a) from range(2000000) t(a)").fetchone()
    threads = len(os.listdir("/proc/self/task"))
    if os.getpid() != HELD.setdefault("pid", os.getpid()):
        connection.close()
    return total, threads


def duckdb_in_a_file() -> object:
    folder = HELD.setdefault("folder", tempfile.TemporaryDirectory())
    return duckdb(f"{folder.name}/base.duckdb")


def python_thread() -> object:
    if "thread" not in HELD:
        HELD["thread"] = threading.Thread(target=threading.Event().wait, daemon=True, name="a user's")
        HELD["thread"].start()
    return HELD["thread"].is_alive() and len(os.listdir("/proc/self/task")) > 1


def event_loop() -> object:
    loop = HELD.setdefault("loop", asyncio.new_event_loop())
    return loop.run_until_complete(asyncio.wait_for(asyncio.sleep(0.01, 5), PATIENCE / 2))


def python_fork() -> int:
    return os.fork()


def bare_fork() -> int:
    return ctypes.PyDLL(None).fork()


def outcome(process: Callable[[], bool], fork: Callable[[], int]) -> bool | None:
    """Runs a function in a fork. None when it did not end in time, False when it crashed or returned False."""
    child = fork()
    if child == 0:
        # A hanging fork ends with its parent.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        right = False
        try:
            right = process()
        finally:
            os._exit(0 if right else 1)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status == 0
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main(library: str, fork: Callable[[], int]) -> dict[str, object]:
    compute: Callable[[], object] = globals()[library]
    wanted = compute()
    safety = ForkSafety()
    reasons = safety.make_quiet()
    deadline = time.monotonic() + PATIENCE
    # On a busy machine a thread may run for longer than a snapshot waits for it; the next snapshot finds it at rest.
    while any("unknown origin" in str(reason) for reason in reasons) and time.monotonic() < deadline:
        reasons = safety.make_quiet()

    def same() -> bool:
        return compute() == wanted

    def copy_of_the_copy() -> bool:
        """As when a held copy takes over: it makes a copy of its own, and both must work."""
        return not safety.make_quiet() and outcome(same, fork) is True and same()

    right = {
        "copy": outcome(same, fork),
        "copy of the copy": outcome(copy_of_the_copy, fork),
        "original": same(),
    }
    return {"reasons": [str(reason) for reason in reasons], "right": right}


if __name__ == "__main__":
    result = main(sys.argv[1], globals()[sys.argv[2]])
    if "folder" in HELD:
        HELD["folder"].cleanup()
    print(json.dumps(result), flush=True)
    os._exit(0)
