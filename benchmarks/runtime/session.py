"""Takes samples, each in a driver process of its own, and leaves no process behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from benchmarks.runtime.plan import Turn
from benchmarks.runtime.process_tree import live_descendants
from benchmarks.runtime.sample import Answer, Sample

MEMORY_BACKED = Path("/dev/shm")
ENDING_GRACE = 5.0
ERROR_TAIL = 300


def take_samples(
    turns: Iterable[Turn],
    parameters: Mapping[str, object],
    progress: Callable[[Sample], None],
    driver: str = "benchmarks.runtime.driver",
    scratch: Path | None = MEMORY_BACKED,
) -> Iterator[Sample]:
    """Samples of all turns, in order. A measure that failed once is not repeated.

    driver: a module like the default one. scratch: parent of each driver's folder; the temporary directory if None.

    The caller must have adopted orphans (`process_tree.adopt_orphans`), so that strays can be found.
    """
    hopeless: set[tuple[str, str]] = set()
    for turn in turns:
        if (turn.measure.name, turn.contender) in hopeless:
            continue
        answer = _ask_driver(turn, parameters, driver, scratch)
        if answer.outcome != "measured":
            hopeless.add((turn.measure.name, turn.contender))
        sample = Sample(
            round=turn.round,
            measure=turn.measure.name,
            contender=turn.contender,
            outcome=answer.outcome,
            figures=answer.figures,
            reason=answer.reason,
        )
        progress(sample)
        yield sample


def _ask_driver(turn: Turn, parameters: Mapping[str, object], module: str, root: Path | None) -> Answer:
    root = root if root is not None and root.is_dir() else None
    with tempfile.TemporaryDirectory(dir=root) as scratch, tempfile.TemporaryFile() as errors:
        answers, answer_end = os.pipe()
        command = [sys.executable, "-m", module]
        command += [turn.contender, turn.measure.name, json.dumps(dict(parameters)), str(answer_end)]
        driver = subprocess.Popen(
            command,
            pass_fds=[answer_end],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "BENCH_SCRATCH": scratch},
        )
        os.close(answer_end)
        with os.fdopen(answers, "rb") as pipe:
            ready, _, _ = select.select([pipe], [], [], turn.measure.limit)
            line = pipe.readline() if ready else None
        _end(driver, grace=ENDING_GRACE if line else 0.0)
        return _answer(line, turn.measure.limit, _text_of(errors))


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _answer(line: bytes | None, limit: float, errors: str) -> Answer:
    if line is None:
        return Answer(outcome="failed", reason=f"no answer within {limit:.0f} s")
    if not line:
        return Answer(outcome="failed", reason=f"the process died: {errors[-ERROR_TAIL:]}")
    return Answer.from_line(line)


def _end(driver: subprocess.Popen[bytes], grace: float) -> None:
    """Waits for the driver and all its descendants, then kills those that remain."""
    mine = live_descendants(os.getpid()) - {os.getpid()}
    deadline = time.monotonic() + grace
    while mine and time.monotonic() < deadline:
        _reap(driver)
        mine &= live_descendants(os.getpid())
        time.sleep(0.01)
    for pid in mine & live_descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    driver.wait()
    _reap(driver)


def _reap(driver: subprocess.Popen[bytes]) -> None:
    """Collects adopted children that have ended; the driver's own status is left to its Popen."""
    driver.poll()
    for pid in live_descendants(os.getpid()) - {os.getpid(), driver.pid}:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
