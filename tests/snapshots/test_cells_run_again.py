"""States stored as the cells that lead to them: one copy serves many states."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.snapshots.test_told_states import CRASH

from cenote import Function, PythonRuntime
from cenote_worker.execution.trace import Location, StepTrace, Version
from cenote_worker.jail.process.authors import Turn
from cenote_worker.jail.snapshots.deltas.replay import LONGEST, ReplayableCell, ReplayLog, run_again

SETUP = (
    "class Node:\n    def __init__(self, i):\n        self.i, self.after = i, None",
    "import random; random.seed(5); nodes = [Node(i) for i in range(50)]",
)
CELLS = (
    "for one, other in zip(nodes, nodes[1:]):\n    one.after = other",
    "nodes[3].i = random.random(); print(nodes[3].i)",
    "head, held = nodes[0], {nodes[7]: 'seven'}\ndel nodes[20:]",
    "class Leaf(Node):\n    pass\nnodes[4].after = Leaf(-1)",
    "import decimal; nodes[5].i = decimal.Decimal(1) / 3",
    "nodes[5]",
)
LOOK = (
    "[n.i for n in nodes], [type(n.after).__name__ for n in nodes], head is nodes[0], held[nodes[7]], head.after.i, "
    "random.random(), type(_).__name__"
)


def shared_copies(runtime: PythonRuntime) -> int:
    """States without a copy of their own: they take whole kilobytes."""
    return sum(info.memory % 1024 > 0 for info in runtime.snapshots())


@pytest.fixture
def ready(runtime: PythonRuntime) -> PythonRuntime:
    """Begins with a copy that took long to make; other tests check how long is allowed."""
    runtime.execute(
        "import cenote_worker.jail.snapshots.deltas.replay as told; told.PER_COPY = 1e6; del told"
    )
    for code in SETUP:
        assert runtime.execute(code).success
    runtime.snapshot()
    return runtime


def test_cells_that_do_the_same_again_have_one_copy(ready: PythonRuntime) -> None:
    """After a crash the state is the one before the cell; output is not printed twice."""
    steps = [ready.execute(code).step for code in CELLS]
    crashed = ready.execute(CRASH)
    assert ("rolled_back", steps[-1], "") == (crashed.state, crashed.back_at, crashed.stdout)
    assert shared_copies(ready) >= len(CELLS) - 1, ready.snapshots()
    found = ready.execute(LOOK)
    ready.rollback(steps[-1])
    assert found.value == ready.execute(LOOK).value
    for step in SETUP:
        ready.execute(step)
    for code in CELLS:
        ready.execute(code)
    assert found.value == ready.execute(LOOK).value


def test_each_state_in_between_can_be_gone_back_to(ready: PythonRuntime) -> None:
    """In any order, and later cells have the same effects."""
    steps = [ready.execute(code).step for code in CELLS[:3]]
    length = [ready.execute("len(nodes)").value, ready.rollback(steps[0]), ready.execute("len(nodes)").value]
    assert ["20", "50"] == [length[0], length[2]]
    assert steps[1] == ready.rollback(steps[1]).step
    again = ready.execute(CELLS[2])
    assert again.success
    assert "20" == ready.execute("len(nodes)").value


@pytest.mark.parametrize(
    "code",
    [
        "import time; nodes[0].i = time.time()",
        "import os; nodes[0].i = os.urandom(4)",
        "nodes[0].i = id(nodes)",
        "with open('kept.txt', 'w') as f:\n    nodes[0].i = f.write('text')",
        "import subprocess; nodes[0].i = subprocess.run(['true']).returncode",
        "nodes[0].i = called(7)",
        "nodes[0].i = 1 / 0",
        "import uuid; nodes[0].i = uuid.uuid4()",
        "import tempfile; nodes[0].i = tempfile.mkdtemp()",
        "import socket; nodes[0].i = socket.gethostname()",
    ],
)
def test_what_may_do_something_else_is_never_run_again(ready: PythonRuntime, code: str) -> None:
    """It has a copy of its own; the rollback restores that one, and no effect happens twice."""
    calls = list[int]()

    def called(number: int) -> int:
        calls.append(number)
        return len(calls)

    ready.inject(Function(called, host=True))
    ready.execute(CELLS[0])
    ready.execute(code)
    before = ready.execute("nodes[0].i, nodes[3].i").value or ""
    ready.execute(CELLS[1])
    assert "rolled_back" == ready.execute(CRASH).state
    assert before.partition(",")[0] == (ready.execute("nodes[0].i, nodes[3].i").value or "").partition(",")[0]
    assert len(calls) == ("called" in code)


def test_another_result_is_said(ready: PythonRuntime) -> None:
    """The code does not show that it draws random values: a rollback to it works, and reports the difference."""
    ready.execute("import os; nodes[0].i = vars(os)['u' + 'random'](9)")
    step = ready.execute("nodes[1].i = 5").step
    ready.execute("nodes[1].i = 6")
    rolled = ready.rollback(step)
    assert step == rolled.step
    assert any("nodes" in line and "run again" in line for line in rolled.amiss), rolled
    assert "5" == ready.execute("nodes[1].i").value


def a_cell(step: int, seconds: float = 0.01) -> ReplayableCell:
    return ReplayableCell(
        step=step,
        code=f"x = {step}",
        turn=("", False),
        left=[(Location("name:x"), b"12345678")],
        seconds=seconds,
    )


def test_as_long_as_copies_would_have_taken() -> None:
    """And never longer than a client may wait after a crash."""
    log = ReplayLog()
    for step in range(1, 4):
        log.add(a_cell(step, LONGEST / 3.5))
    assert log.told(1.0)
    assert not log.told(LONGEST / 200)
    log.add(a_cell(4, LONGEST / 3.5))
    assert not log.told(1.0)


def test_nothing_is_told_where_something_else_has_changed_the_state() -> None:
    log = ReplayLog()
    log.add(a_cell(1))
    assert log.told(1.0)
    log.add(None)
    log.add(a_cell(2))
    assert not log.told(1.0)


def test_cells_run_in_their_order_and_one_that_fails_ends_it() -> None:
    log, ran = ReplayLog(), list[int]()
    for step in (3, 4, 5):
        log.add(a_cell(step))

    def run(_code: str, step: int, _turn: Turn) -> StepTrace | None:
        ran.append(step)
        return StepTrace(writes={Location("name:x"): Version("other")}) if step < 5 else None

    with pytest.raises(ValueError, match="cell 5 has failed"):
        run_again(log.told(1.0) or b"", run)
    assert all(one < other for one, other in pairwise(ran))
