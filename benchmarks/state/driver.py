"""The process that takes one sample: `python -m benchmarks.state.driver CONTENDER MEASURE PARAMETERS FD`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from benchmarks.runtime.driver import give, take_sample
from benchmarks.runtime.process_tree import adopt_orphans
from benchmarks.state.keepers import load_keeper
from benchmarks.state.measures import MEASURES
from benchmarks.state.parameters import Parameters


def main(contender: str, measure: str, parameters: str, descriptor: str) -> None:
    adopt_orphans()
    chosen = next(one for one in MEASURES if one.name == measure)
    numbers = Parameters(**json.loads(parameters))
    folder = Path(os.environ["BENCH_SCRATCH"])
    give(take_sample(lambda: chosen.run(load_keeper(contender), numbers, folder)), descriptor)


if __name__ == "__main__":
    main(*sys.argv[1:])
