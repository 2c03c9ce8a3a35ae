"""A script with its own Ray cluster: prints the results as JSON. Run by test_ray_datasets.py."""

from __future__ import annotations

import io
import json
import os
import runpy
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import ray
from tests.support.processes import kill, runs, title, tree_of
from tests.support.small_ray import start_ray
from tests.waiting import until

from cenote import PythonRuntime, SandboxPolicy, Variable
from cenote.data import Datasets, failed_rows, map_batches
from cenote.runtime import ObjectReference

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

POLICY = SandboxPolicy(memory="300MiB", preload=("numpy", "pandas", "pyarrow"))

CODE = """
lookup = {0: "zero", 1: "one"}
BAD = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 700, 701]

def name(batch):
    import time
    time.sleep(0.2 if len(batch) > 50 else 0)  # time to be killed in
    if batch.id.isin(BAD).any():
        raise ValueError("seven hundred")
    return batch.assign(word=(batch.id % 2).map(lookup))
"""

ASK = """
for call in (lambda: datasets.load("numbers"), lambda: datasets.count("nambers"), lambda: datasets.head("numbers", 0),
             lambda: datasets.put("name", name), lambda: datasets.map("numbers", "names", into="x"),
             lambda: datasets.drop("numbers"), lambda: datasets.count("numbers")):
    try:
        print(call())
    except ValueError as error:
        print(error)
"""


def with_jail() -> list[int]:
    """A process of our Ray's that has a jail, with all that it started; empty while there is none."""
    # Below this process: another run's processes may be on this machine.
    trees = (tree_of(pid) for pid in tree_of(os.getpid()) if title(pid).startswith("ray::MapWorker"))
    return next((tree for tree in trees if len(tree) > 2), [])


def strike(gone: list[int]) -> None:
    """Kills a process of Ray's when its jail exists."""
    tree = until(with_jail)
    gone.extend(tree)
    kill(tree[0])


def raised(numbers: ray.data.Dataset, function: ObjectReference) -> str:
    try:
        map_batches(numbers, function, sandbox=POLICY, jails=1).materialize()
    except ray.exceptions.RayTaskError as error:
        return str(error)
    return "nothing"


def read_back(mapped: ray.data.Dataset, folder: Path) -> dict[str, list[list[object]]]:
    """The written data, by each reader: the rows, and the error of each failed row."""
    mapped.write_parquet(str(folder))
    frames = {
        "pandas": pd.read_parquet(folder),
        "pyarrow": pq.read_table(folder).to_pandas(),
        "ray": ray.data.read_parquet(str(folder)).to_pandas(),
    }
    return {
        name: [*values_of(frame), [str(text) for text in frame["went"].dropna()]]
        for name, frame in frames.items()
    }


def values_of(frame: pd.DataFrame) -> list[list[object]]:
    """Rows without an error, by number."""
    rows = frame[frame["went"].isna()].sort_values("id")[["id", "word", "went"]]
    return [[None if pd.isna(each) else each for each in row] for row in rows.itertuples(index=False)]


def shown() -> str:
    """The example's output on this cluster, since starting another one takes a while."""
    sys.path.insert(0, str(EXAMPLES))
    sys.argv = ["large_dataset.py"]
    with redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(EXAMPLES / "large_dataset.py"), run_name="__main__")
    return said.getvalue()


def main(folder: str) -> None:
    start_ray(folder)
    numbers = ray.data.range(1000, override_num_blocks=2).materialize()
    datasets = Datasets({"numbers": numbers}, sandbox=POLICY, load_limit=2_000)
    gone: list[int] = []
    with PythonRuntime(sandbox=POLICY, variables=[Variable("datasets", datasets, host=True)]) as runtime:
        assert runtime.execute(CODE).success
        function = runtime.share("name")
        threading.Thread(target=strike, args=(gone,)).start()
        mapped = map_batches(
            numbers, function, batch_size=100, jails=1, sandbox=POLICY, errors_to="went"
        ).materialize()
        until(lambda: gone and not any(runs(pid) for pid in gone))
        rows = mapped.take_all()
        # Blocks of one batch each; the first one has no good row.
        small = map_batches(
            ray.data.range(1000, override_num_blocks=100), function, sandbox=POLICY, jails=2, errors_to="went"
        ).materialize()
        told = {
            "read": read_back(small, Path(folder) / "written"),
            "schemas": len({str(block.schema) for block in map(ray.get, small.get_internal_block_refs())}),
            "good": sorted((row["id"], row["word"]) for row in rows if row["went"] is None),
            "errors": [row["went"] for row in rows if row["went"] is not None],
            "failed": sorted(row["id"] for row in failed_rows(mapped, "went").take_all()),
            "killed": len(gone) > 2,
            "raised": raised(numbers, function),
            "asked": str(runtime.execute(ASK).stdout),
        }
    told["example"] = shown()
    ray.shutdown()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
