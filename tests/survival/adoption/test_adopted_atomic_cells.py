"""An atomic cell stays atomic when its supervisor is killed: its successor undoes it, or finds it undone."""

from __future__ import annotations

import random
from queue import Empty
from time import monotonic

import pytest
from tests.support.adoption.fixtures import Node, Victim, value
from tests.support.hosted.listening import Heard

from cenote_security.errors import UnavailableError
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.runtime import HostedRuntime

CELLS = 120
KILLS = 3

CELL = "log.append({number})\nprint('cell', {number})\nassert {number} % 2\nlen(log)"
"""A cell with an odd number succeeds."""


def join(runtime: HostedRuntime, number: int) -> Heard:
    listener, key = Heard(), RequestKey(text=str(number))
    runtime.execute(CELL.format(number=number), None, listener, key, on_error="rollback")
    return listener


def test_killed_while_it_runs(node: Node) -> None:
    """Its output remains, and its effects do not."""
    victim = node.victim()
    victim.execute("log = []", "log")
    victim.value("log")
    wait = "import os, time\nlog.append(7); print('here', flush=True)\n"
    wait += "while not os.path.exists('go'): time.sleep(0.01)\n1 / 0"
    victim.execute(wait, "cell", on_error="rollback")
    victim.heard("cell", "here")
    victim.kill()
    runtime = node.adopt()
    listener = Heard()
    runtime.join(RequestKey(text="cell"), listener)
    assert runtime.interrupt()
    result = listener.result()
    assert ("rolled_back", 1, "here\n") == (result.state, result.back_at, result.stdout)
    assert "[]" == value(runtime, "log")


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 40))])
def test_killed_at_random(node: Node, seed: int) -> None:
    """Each cell runs once; failed cells leave nothing, wherever between cell and return the process was killed."""
    chance, waiting = random.Random(seed), list(range(CELLS))
    victim = node.victim()
    victim.execute("log = []", "log")
    victim.value("log")
    for _ in range(KILLS):
        for number in waiting:
            victim.execute(CELL.format(number=number), str(number), on_error="rollback")
        collect(victim, waiting, chance.uniform(0.02, 0.2))
        victim.kill()
        victim = node.adopting()
    victim.kill()
    runtime = node.adopt()
    # A cell about to be sent has not run if no entry says that it was sent: it may be sent again.
    first = join(runtime, waiting[0]).outcome()
    assert isinstance(first, ExecutionResult | UnavailableError)
    heard = {number: join(runtime, number) for number in waiting}
    results = {number: listener.result() for number, listener in heard.items()}
    assert ["kept" if number % 2 else "rolled_back" for number in results] == [
        result.state for result in results.values()
    ]
    assert [f"cell {number}\n" for number in results] == [result.stdout for result in results.values()]
    assert str([number for number in range(CELLS) if number % 2]) == value(runtime, "log")


def collect(victim: Victim, waiting: list[int], seconds: float) -> None:
    """Takes answers for that many seconds."""
    deadline = monotonic() + seconds
    while (left := deadline - monotonic()) > 0:
        try:
            report = victim.report(left)
        except Empty:
            return
        if "done" in report and report["key"].isdecimal():
            waiting.remove(int(report["key"]))
