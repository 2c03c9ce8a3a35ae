"""How long a status answer takes while a cell holds the interpreter lock."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from functools import partial

from benchmarks.runtime.contender import CellFailedError, Contender
from benchmarks.runtime.measure import Measure, Unit
from benchmarks.runtime.parameters import Parameters
from benchmarks.runtime.stopwatch import percentile

WARM_UP_REGEX = 8
INTERVAL = 0.05
OBJECT = 900


def ask_while_busy(kind: type[Contender], parameters: Parameters, *, full: bool) -> dict[str, float]:
    """Questions follow a fixed schedule, and an answer is timed from when its question was due.

    Otherwise a contender that shares the lock with the cell would benefit from asking late. The same schedule runs
    once without a cell (`idle`), for comparison.

    full: the namespace holds many small objects, whose pages an implementation might count for an answer.
    """
    with closing(kind()) as contender:
        if full:
            contender.execute(f"held = [bytes({OBJECT}) for _ in range({parameters.held // OBJECT})]")
        contender.execute(_cell(WARM_UP_REGEX))
        contender.status()
        idle = _answers(contender, parameters.asks, threading.Event(), time.perf_counter())
        busy = _answers_during(contender, _cell(parameters.regex), parameters.asks)
    return {"idle p50": percentile(idle, 50), "busy p50": percentile(busy, 50), "busy worst": max(busy)}


def _cell(length: int) -> str:
    return f"import re\nmatched = re.match('(a+)+b', 'a' * {length})"


def _answers_during(contender: Contender, cell: str, asks: int) -> list[float]:
    done = threading.Event()
    failures: list[Exception] = []

    def run() -> None:
        try:
            contender.execute(cell)
        except CellFailedError as error:
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run)
    begin = time.perf_counter()  # before start(), which may return only when the lock is free again
    thread.start()
    answers = _answers(contender, asks, done, begin)
    thread.join()
    if failures:
        raise failures[0]
    return answers


def _answers(contender: Contender, asks: int, done: threading.Event, begin: float) -> list[float]:
    """Time from when each question was due to its answer; stops early once the cell is done."""
    answers = []
    for i in range(1, asks + 1):
        due = begin + i * INTERVAL
        time.sleep(max(0.0, due - time.perf_counter()))
        contender.status()
        answers.append(time.perf_counter() - due)
        if done.is_set():
            break
    return answers


_FIGURES = {"idle p50": Unit.SECONDS, "busy p50": Unit.SECONDS, "busy worst": Unit.SECONDS}

MEASURES = (
    Measure(
        name="busy",
        title="sign of life while a regular expression holds the interpreter lock",
        run=partial(ask_while_busy, full=False),
        figures=_FIGURES,
        rounds=3,
    ),
    Measure(
        name="busy-full",
        title="the same with a gigabyte of small objects in the namespace",
        run=partial(ask_while_busy, full=True),
        figures=_FIGURES,
        rounds=2,
    ),
)
