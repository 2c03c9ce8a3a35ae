"""A cell that takes some seconds and prints, so that a test can kill processes meanwhile."""

from __future__ import annotations

import threading

from cenote import PythonRuntime
from cenote.runtime import ExecutionResult
from cenote_security.errors import CenoteError

CELL = """
import time
for number in range({lines}):
    print(number, flush=True)
    time.sleep(0.1)
before + {lines}
"""

LINES = 20
PRINTED = "".join(f"{number}\n" for number in range(LINES))


class Running:
    """A running cell, with its output as it arrives."""

    def __init__(self, runtime: PythonRuntime, lines: int = LINES) -> None:
        """lines: how many it prints, ten a second."""
        self.heard = ""
        self._code = CELL.format(lines=lines)
        self._some = threading.Event()
        self._result: ExecutionResult | CenoteError | None = None
        self._thread = threading.Thread(target=self._run, args=(runtime,), daemon=True)
        self._thread.start()
        assert self._some.wait(60), "it does not begin"

    def result(self) -> ExecutionResult | CenoteError:
        self._thread.join(90)
        assert self._result is not None, "it hangs"
        return self._result

    def _run(self, runtime: PythonRuntime) -> None:
        try:
            self._result = runtime.execute(self._code, on_output=self._hear)
        except CenoteError as error:
            self._result = error

    def _hear(self, stream: str, text: str) -> None:
        self.heard += text
        self._some.set()


def check_whole(running: Running) -> None:
    """The cell ended normally, and no line was received twice."""
    result = running.result()
    assert isinstance(result, ExecutionResult), result
    assert (PRINTED, PRINTED, "33") == (result.stdout, running.heard, result.value)
