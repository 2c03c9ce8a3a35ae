"""The process that takes one sample: `python -m benchmarks.runtime.driver CONTENDER MEASURE PARAMETERS FD`.

The answer goes to a descriptor of its own, because contenders print what they like.
"""

from __future__ import annotations

import json
import os
import sys

from benchmarks.runtime.contender import NotOfferedError
from benchmarks.runtime.contenders import load_contender
from benchmarks.runtime.measures import MEASURES
from benchmarks.runtime.parameters import Parameters
from benchmarks.runtime.process_tree import adopt_orphans
from benchmarks.runtime.sample import Answer

REASON_LIMIT = 500


def take_sample(contender: str, measure_name: str, parameters: Parameters) -> Answer:
    """Run one measure here. Whatever goes wrong becomes part of the answer."""
    measure = next(measure for measure in MEASURES if measure.name == measure_name)
    try:
        kind = load_contender(contender)
    except ImportError as error:
        return Answer(outcome="not installed", reason=str(error))
    try:
        return Answer(outcome="measured", figures=dict(measure.run(kind, parameters)))
    except NotOfferedError as error:
        return Answer(outcome="not offered", reason=str(error))
    except Exception as error:
        return Answer(outcome="failed", reason=f"{type(error).__name__}: {error}"[:REASON_LIMIT])


def main(contender: str, measure: str, parameters: str, descriptor: str) -> None:
    adopt_orphans()
    answer = take_sample(contender, measure, Parameters(**json.loads(parameters)))
    with os.fdopen(int(descriptor), "wb") as out:
        out.write(answer.to_line())


if __name__ == "__main__":
    main(*sys.argv[1:])
