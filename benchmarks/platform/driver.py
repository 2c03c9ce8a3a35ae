"""The process that drives one service: `python -m benchmarks.platform.driver SERVICE PARAMETERS FD`.

It starts the service with the first requested measure (one name a line) and ends it when the input is closed.
Answers go to a separate descriptor, because services may print anything.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

from benchmarks.platform.measures import MEASURES
from benchmarks.platform.parameters import Parameters
from benchmarks.platform.service import AnyService
from benchmarks.platform.services import start_service
from benchmarks.runtime.contender import NotOfferedError
from benchmarks.runtime.process_tree import adopt_orphans
from benchmarks.runtime.sample import Answer

REASON_LIMIT = 500


class Driver:
    def __init__(self, service: str, parameters: Parameters) -> None:
        self._name = service
        self._parameters = parameters
        self._service: AnyService | None = None

    def take_sample(self, measure_name: str) -> Answer:
        """Runs one measure here. Any failure becomes part of the answer."""
        measure = next(measure for measure in MEASURES if measure.name == measure_name)
        try:
            self._service = self._service or start_service(self._name)
            return Answer(outcome="measured", figures=dict(measure.run(self._service, self._parameters)))
        except ImportError as error:
            return Answer(outcome="not installed", reason=str(error))
        except NotOfferedError as error:
            return Answer(outcome="not offered", reason=str(error))
        except Exception as error:
            traceback.print_exc()
            return Answer(outcome="failed", reason=f"{type(error).__name__}: {error}"[:REASON_LIMIT])

    def close(self) -> None:
        if self._service is not None:
            self._service.close()


def main(service: str, parameters: str, descriptor: str) -> None:
    adopt_orphans()
    driver = Driver(service, Parameters(**json.loads(parameters)))
    try:
        with os.fdopen(int(descriptor), "wb", buffering=0) as out:
            for line in sys.stdin:
                out.write(driver.take_sample(line.strip()).to_line())
    finally:
        driver.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
