"""States stored as the cells that lead to them: one copy serves many states."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.behaviour.snapshots.test_told_states import CRASH
from tests.support.snapshots.parked import is_parked, park_at_once
from tests.waiting import until

from cenote import Function, PythonRuntime
from cenote_worker.execution.trace import Location, StepTrace, Version
from cenote_worker.jail.process.authors import Turn
from cenote_worker.jail.snapshots.deltas.replay import LONGEST, ReplayableCell, ReplayLog, run_again
from cenote_worker.supervisor.worker_failover import WorkerPresence

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
BY_CELLS = "import cenote_worker.jail.snapshots.deltas.replay as told; {}; del told"
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
    runtime.execute(BY_CELLS.format("told.PER_COPY = 1e6"))
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


def test_a_result_says_how_the_state_before_is_kept(ready: PythonRuntime) -> None:
    """As a copy, or as the cells since; the record says it too, and nothing where no state is kept."""
    results = [ready.execute(code) for code in (*CELLS[:2], "import time; now = time.time()", "1")]
    assert ["copy", "cells", "cells", "copy"] == [result.kept_as for result in results]
    assert ["", "", "", ""] == [result.unkept for result in results]
    assert [result.kept_as for result in results] == [step.kept_as for step in ready.state.history[-4:]]
    ready.execute("import threading; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()")
    last = ready.execute("1")
    assert ("", True) == (last.kept_as, "threads were running" in last.unkept)


def test_each_state_in_between_can_be_gone_back_to(ready: PythonRuntime) -> None:
    """In any order, and later cells have the same effects."""
    steps = [ready.execute(code).step for code in CELLS[:3]]
    length = [ready.execute("len(nodes)").value, ready.rollback(steps[0]), ready.execute("len(nodes)").value]
    assert ["20", "50"] == [length[0], length[2]]
    assert steps[1] == ready.rollback(steps[1]).step
    again = ready.execute(CELLS[2])
    assert again.success
    assert "20" == ready.execute("len(nodes)").value


def test_no_copy_is_needed_before_the_first_one(runtime: PythonRuntime) -> None:
    """The cells run again in a fresh worker. Other states are bindings to the initial one."""
    steps = [runtime.execute(code).step for code in (*SETUP, *CELLS)]
    crashed = runtime.execute(CRASH)
    assert ("rolled_back", steps[-1], "") == (crashed.state, crashed.back_at, crashed.stdout)
    assert 0 == shared_copies(runtime) - len(runtime.snapshots()) + 1, runtime.snapshots()
    found = runtime.execute(LOOK)
    again = runtime.rollback(steps[-1])
    assert (steps[-1], ()) == (again.step, again.amiss)
    assert found.value == runtime.execute(LOOK).value


def test_cells_that_read_a_file_read_what_it_was(runtime: PythonRuntime) -> None:
    """A later cell has written something else into it."""
    runtime.execute(f"{SETUP[0]}\nopen('file', 'w').write('one')")
    runtime.snapshot()
    step = runtime.execute("node = Node(open('file').read())").step
    runtime.execute("other = Node(open('file', 'w').write('two'))")
    rolled = runtime.rollback(step)
    assert (step, ()) == (rolled.step, rolled.amiss)
    assert "('one', 'one')" == runtime.execute("node.i, open('file').read()").value


def test_a_state_that_takes_long_to_make_again_is_copied_in_a_pause(runtime: PythonRuntime) -> None:
    """Nothing waits for that. Until then the cells describe it."""
    always = f"{BY_CELLS.format('told.PER_COPY, told.SLOW = 1e6, 0.0')}\nnodes = [object()]"
    assert runtime.execute(always).unkept == ""
    step = runtime.execute("nodes.append(object())").step
    until(lambda: any(info.step == step and info.memory > 100_000 for info in runtime.snapshots()))
    assert "rolled_back" == runtime.execute(CRASH).state
    assert "2" == runtime.execute("len(nodes)").value


def test_a_worker_whose_cells_would_run_again_does_not_rest(
    runtime: PythonRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would wait for them."""
    park_at_once(monkeypatch)
    runtime.execute("x = 1")
    assert is_parked(runtime)
    runtime.execute("nodes = [object()]")
    supervisor = runtime.core.backend.supervisor  # type: ignore[attr-defined]
    runtime.execute("nodes[0] is nodes")
    until(lambda: supervisor._parking._presence is WorkerPresence.THERE)
    assert "1" == runtime.execute("len(nodes)").value


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
        "from sklearn.model_selection import GridSearchCV as Search\nfrom sklearn.linear_model import Ridge\n"
        "search = Search(Ridge(), {'alpha': [1, 2]}, cv=2).fit([[1], [2], [3], [5]], [1, 2, 4, 5])\n"
        "nodes[0].i = search.refit_time_",
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
