"""A function over a Ray Dataset, run in jails and in Ray's own processes without isolation, in turns in one run."""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Callable
from typing import Final

BLOCKS: Final = 16
ROWS: Final = 500_000
"""Size of a block: 16 MB in four columns."""

SOURCE: Final = """
def work(frame):
    frame["z"] = (frame.x - frame.x.mean()) / frame.x.std()
    frame = frame[frame.z.abs() < 2]
    return frame.assign(bucket=(frame.y * 10).astype("int64"))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)


def run(arguments: argparse.Namespace) -> None:
    import ray
    from ray.data import ActorPoolStrategy

    from cenote import SandboxPolicy
    from cenote.data import map_batches

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.from_arrow([_block(number) for number in range(BLOCKS)]).materialize()
    ways: dict[str, Callable[[], object]] = {
        "Ray's own processes": lambda: dataset.map_batches(
            _Bare, batch_format="pandas", batch_size=None, compute=ActorPoolStrategy(size=1), num_cpus=1
        ).materialize(),
        "jails": lambda: map_batches(
            dataset, SOURCE, name="work", jails=1, sandbox=SandboxPolicy(memory="1GiB")
        ).materialize(),
    }
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(arguments.rounds):
        for way, work in ways.items():
            begin = time.perf_counter()
            work()
            took[way].append(time.perf_counter() - begin)
    ray.shutdown()
    size = BLOCKS * ROWS * 32 / 2**20
    print(
        f"{size:.0f} MiB in {BLOCKS} blocks through one process each, start of it included; seconds, by the clock"
    )
    for way, seconds in took.items():
        print(
            f"{way:24} {statistics.median(seconds):6.2f}   ({', '.join(f'{each:.2f}' for each in seconds)})"
        )
    ratio = statistics.median(took["jails"]) / statistics.median(took["Ray's own processes"])
    print(f"jails take {ratio:.2f} times as long")


class _Bare:
    """The same function, run directly by Ray."""

    def __init__(self) -> None:
        names: dict[str, Callable[[object], object]] = {}
        exec(SOURCE, names)
        self._work = names["work"]

    def __call__(self, frame: object) -> object:
        return self._work(frame)


def _block(number: int) -> object:
    import numpy as np
    import pyarrow as pa

    chance = np.random.default_rng(number)
    columns = {name: chance.random(ROWS) for name in "xyw"} | {"id": np.arange(ROWS) + number * ROWS}
    return pa.table(columns)
