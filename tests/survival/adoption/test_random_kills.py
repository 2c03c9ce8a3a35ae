"""Processes that host one runtime are killed one after the other, at random moments, while a client sends cells."""

from __future__ import annotations

import random
import time
from queue import Empty

import pytest
from tests.support.adoption.fixtures import Node, Victim, value
from tests.support.hosted.listening import Heard
from tests.waiting import PATIENCE

from cenote_worker.runtime.keyed_requests import RequestKey

KILLS = 6
CELLS = 3000

WINDOW = 100
"""Number of cells that a client sends at once: outcomes of that many are retained."""

LINE = """
log = globals().get('log', [])
log.append({number})
print('line', {number})
if {number} % 7 == 0: print('y' * 20_000)
len(log)
"""


class Client:
    """Sends cells in order, and repeats those without an answer."""

    def __init__(self) -> None:
        self.waiting = list(range(CELLS))

    def send_window(self, victim: Victim) -> None:
        for number in self.waiting[:WINDOW]:
            self.send(victim, number)

    def send(self, victim: Victim, number: int) -> None:
        if number % 20 == 0:
            size = 60_000 * (number % 40 > 0)
            victim.tell("inject", f"gift {number}", name="gift", value=number, size=size)
        victim.execute(LINE.format(number=number), str(number))

    def collect(self, victim: Victim, seconds: float) -> None:
        """Takes answers for that many seconds, and at least one."""
        deadline, before = time.monotonic() + seconds, len(self.waiting)
        while (left := deadline - time.monotonic()) > 0 or len(self.waiting) == before:
            try:
                report = victim.report(left if left > 0 else PATIENCE)
            except Empty:
                assert left > 0, "no answer comes"
                continue
            if "done" in report and report["key"].isdecimal():
                assert str(int(report["key"]) + 1) == report["done"]
                self.waiting.remove(int(report["key"]))
                if len(self.waiting) >= WINDOW:
                    self.send(victim, self.waiting[WINDOW - 1])


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 40))]


@pytest.mark.sweep
@pytest.mark.parametrize("seed", SEEDS)
def test_each_cell_runs_once_and_in_order(node: Node, seed: int) -> None:
    """However often the process is killed: no cell is lost, none runs twice, each answer belongs to its cell."""
    chance = random.Random(seed)
    client = Client()
    victim = node.victim()
    for _ in range(KILLS):
        victim.wait_for(lambda report: "hosting" in report)
        client.send_window(victim)
        client.collect(victim, chance.uniform(0.05, 0.25))
        victim.kill()
        victim = node.adopting()
    victim.kill()
    runtime = node.adopt()
    asked: dict[int, Heard] = {}
    assert WINDOW < len(client.waiting) < CELLS
    for number in client.waiting[:WINDOW]:
        asked[number] = Heard()
        code = LINE.format(number=number)
        runtime.execute(code, None, asked[number], RequestKey(text=str(number)))
    for number, listener in asked.items():
        result = listener.result()
        assert result.stdout.startswith(f"line {number}\n"), number
        assert listener.printed == result.stdout
    assert str(list(range(max(asked) + 1))) == value(runtime, "log")
