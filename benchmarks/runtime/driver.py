"""The process that takes one sample: `python -m benchmarks.runtime.driver CONTENDER MEASURE PARAMETERS FD`.

The answer goes to a separate descriptor, because contenders may print anything.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from benchmarks.runtime.contender import NotOfferedError
from benchmarks.runtime.contenders import load_contender
from benchmarks.runtime.measure import Figures
from benchmarks.runtime.measures import MEASURES
from benchmarks.runtime.parameters import Parameters
from benchmarks.runtime.process_tree import adopt_orphans
from benchmarks.runtime.sample import Answer

REASON_LIMIT = 500


def take_sample(run: Callable[[], Figures]) -> Answer:
    """Runs one measure here. Any failure becomes part of the answer."""
    try:
        return Answer(outcome="measured", figures=dict(run()))
    except ImportError as error:
        return Answer(outcome="not installed", reason=str(error))
    except NotOfferedError as error:
        return Answer(outcome="not offered", reason=str(error))
    except Exception as error:
        return Answer(outcome="failed", reason=f"{type(error).__name__}: {error}"[:REASON_LIMIT])


def main(contender: str, measure: str, parameters: str, descriptor: str) -> None:
    adopt_orphans()
    chosen = next(one for one in MEASURES if one.name == measure)
    numbers = Parameters(**json.loads(parameters))
    give(take_sample(lambda: chosen.run(load_contender(contender), numbers)), descriptor)


def give(answer: Answer, descriptor: str) -> None:
    with os.fdopen(int(descriptor), "wb") as out:
        out.write(answer.to_line())


if __name__ == "__main__":
    main(*sys.argv[1:])
