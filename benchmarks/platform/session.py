"""Takes samples: each service has a driver process for the whole run; no driver outlives the run."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Self

from benchmarks.platform.parameters import Parameters
from benchmarks.runtime.plan import Turn
from benchmarks.runtime.process_tree import live_descendants
from benchmarks.runtime.sample import Answer, Sample

END_PATIENCE = 30.0
ERROR_TAIL = 300


class Driven:
    """A driver process. Closing it ends its service and kills its remaining processes."""

    def __init__(self, service: str, parameters: Parameters) -> None:
        reading, writing = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the driver)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.platform.driver"),
                *(service, _spelled(parameters), str(writing)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=[writing],
        )
        os.close(writing)
        self._answers = os.fdopen(reading, "rb")

    def ask(self, measure: str, limit: float) -> Answer:
        """Takes one sample. A driver that does not answer in time is not used again."""
        assert self._process.stdin is not None, "it was asked for"
        try:
            self._process.stdin.write(f"{measure}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return Answer(outcome="failed", reason="its process has died before")
        if not select.select([self._answers], [], [], limit)[0]:
            self._kill(self._family())
            return Answer(outcome="failed", reason=f"no answer within {limit:.0f} s")
        line = self._answers.readline()
        if not line:
            return Answer(outcome="failed", reason=f"its process died: {self._last_words()}")
        return Answer.from_line(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        family = self._family()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_PATIENCE)
        self._kill(family)
        self._process.wait()
        self._answers.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _family(self) -> set[int]:
        return live_descendants(self._process.pid) if self._process.poll() is None else set()

    def _kill(self, family: set[int]) -> None:
        """Kills those of the family that are still below this process; other pids may have been reused."""
        for pid in family & live_descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in family - {self._process.pid}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-ERROR_TAIL:]


def take_samples(
    turns: Iterable[Turn],
    services: Sequence[str],
    parameters: Parameters,
    progress: Callable[[Sample], None],
) -> Iterator[Sample]:
    """Samples of all turns, in order. A measure that failed once is not repeated.

    The caller must have adopted orphans (`process_tree.adopt_orphans`), so that strays can be found.
    """
    hopeless: set[tuple[str, str]] = set()
    with contextlib.ExitStack() as stack:
        drivers = {name: stack.enter_context(Driven(name, parameters)) for name in services}
        for turn in turns:
            if (turn.measure.name, turn.contender) in hopeless:
                continue
            sample = _sample(turn, drivers[turn.contender].ask(turn.measure.name, turn.measure.limit))
            if sample.outcome != "measured":
                hopeless.add((turn.measure.name, turn.contender))
            progress(sample)
            yield sample


def _sample(turn: Turn, answer: Answer) -> Sample:
    return Sample(round=turn.round, measure=turn.measure.name, contender=turn.contender, **asdict(answer))


def _spelled(parameters: Parameters) -> str:
    return json.dumps(asdict(parameters))
