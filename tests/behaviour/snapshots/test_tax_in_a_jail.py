"""A cell that rewrites all its memory does not pay for a snapshot until it ends."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.behaviour.forksafe.test_huge_pages import MOST_OF_IT, needs_collapsing
from tests.support.processes import tree_of
from tests.support.snapshots.fixtures import MakeRuntime
from tests.waiting import until

from cenote.runtime import PythonRuntime


def gone(first: int, last: int) -> str:
    return f"no rollback to steps {first} to {last} is possible any more"


@pytest.mark.slow
def test_a_sweep_gives_its_snapshots_up(make_runtime: MakeRuntime) -> None:
    """The result says so; the state after the cell is stored again."""
    runtime = make_runtime(memory="2GiB")
    assert runtime.execute("import numpy as np\na = np.zeros(3 * 2**25); a[:] = 1").success
    runtime.snapshot()  # which is a copy: on a fast machine these two cells may describe the state, too
    result = runtime.execute("for _ in [0, 1, 2]: a += 1")  # which cannot be foreseen
    assert result.success
    assert "while the cell ran" in result.unkept
    assert gone(0, 1) in " ".join(result.news)
    assert ((), "") == ((result := runtime.execute("x = 1")).news, result.unkept)
    assert "rolled_back" == runtime.execute("import os; os._exit(1)").state
    assert "4.0" == runtime.execute("float(a[-1])").value


MAKE = "import numpy as np\na = np.zeros(2**24); a[:] = 1"


def test_a_sweep_that_can_be_foreseen_gives_them_up_before_it(make_runtime: MakeRuntime) -> None:
    """However short it is: nothing is paid, and the result says that the state before it is not stored."""
    runtime = make_runtime(memory="2GiB")
    assert runtime.execute(MAKE).success
    runtime.snapshot()
    assert [0, 1] == [each.step for each in runtime.snapshots()]
    result = runtime.execute("a += 1")
    assert "given up" in result.unkept
    assert gone(0, 1) in " ".join(result.news)
    runtime.snapshot()  # of the state after it, which is awaited
    assert [2] == [each.step for each in runtime.snapshots()]
    runtime.execute("a = None")
    runtime.rollback(2)
    runtime.execute("def grow(x):\n    x *= 2")
    assert "would have taken too long" in runtime.execute("grow(a)").unkept
    assert "4.0" == runtime.execute("float(a[-1])").value


def test_between_sweeps_in_a_row_nothing_is_copied(make_runtime: MakeRuntime) -> None:
    """The copy would be dropped at once. A cell after the sweeps, or none, finds its state stored."""
    runtime = make_runtime(memory="2GiB")
    assert runtime.execute(MAKE).success

    def forks() -> int:
        """Forks for three sweeps, with this cell's and those around it, unless these can be run again. Otherwise
        five.
        """
        first = next_pid(runtime)
        assert all("given up" in runtime.execute("a += 1").unkept for _ in range(3))
        return next_pid(runtime) - first

    until(lambda: forks() <= 3)
    assert "" == runtime.execute("x = object()").unkept
    runtime.execute("a += 1")
    newest = runtime.execute("a += 1").step
    until(lambda: newest in [each.step for each in runtime.snapshots()])


def next_pid(runtime: PythonRuntime) -> int:
    """Process numbers in a jail are consecutive."""
    code = "import os\nif not (pid := os.fork()):\n    os._exit(0)\nos.waitpid(pid, 0)[0]"
    return int(runtime.execute(code).value or "")


@pytest.mark.slow
def test_behind_two_cells_that_lost_theirs_one_gets_none(make_runtime: MakeRuntime) -> None:
    """It visits as many objects as they did, and its code says so; a cell that uses something else has its copy."""
    runtime = make_runtime(memory="2GiB")
    assert runtime.execute("objects = [[n] for n in range(1_000_000)]").success
    runtime.snapshot()  # which is a copy
    lost = [runtime.execute("n = sum(map(len, objects))").unkept for _ in range(3)]
    assert [True, True, False] == ["while the cell ran" in each for each in lost]
    assert "would have taken too long" in lost[2]
    assert "" == runtime.execute("x = 1").unkept
    assert "rolled_back" == runtime.execute("import os; os._exit(1)").state
    assert "1000000" == runtime.execute("len(objects)").value


def test_what_somebody_has_asked_for_is_not_given_up(make_runtime: MakeRuntime) -> None:
    """A label, or a cell that is rolled back if it fails."""
    runtime = make_runtime(memory="2GiB")
    assert runtime.execute(MAKE).success
    runtime.snapshot("full")
    assert "" == runtime.execute("a += 1").unkept
    runtime.rollback("full")
    failed = runtime.execute("a += 1; 1 / 0", on_error="rollback")
    assert ("rolled_back", "") == (failed.state, failed.unkept)
    assert "1.0" == runtime.execute("float(a[-1])").value


def test_an_ordinary_cell_keeps_them(make_runtime: MakeRuntime) -> None:
    """New memory is no copying, however much there is of it."""
    runtime = make_runtime(memory="2GiB")
    assert "" == runtime.execute("import numpy as np\na = np.zeros(2**25); a[:] = 1").unkept
    assert "" == runtime.execute("total = sum(range(10**6))").unkept
    assert "" == runtime.execute("b = np.ones(2**24)").unkept


def on_huge_pages(others: Iterable[int]) -> int:
    """Bytes of the processes below this one, without the other tests' processes."""
    found = 0
    for pid in set(tree_of(os.getpid())).difference(others):
        with suppress(FileNotFoundError, ProcessLookupError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                found += 1024 * int(line.split()[1]) if line.startswith("AnonHugePages") else 0
    return found


@needs_collapsing
def test_small_objects_are_put_on_huge_pages_while_nobody_waits(make_runtime: MakeRuntime) -> None:
    """The kernel lets a jail do that. The state is stored all the same."""
    runtime = make_runtime(memory="2GiB")
    others = tree_of(os.getpid())  # such as a jail of the test before, which is about to end
    assert runtime.execute(
        "import time\nbegan = time.time()  # which no other run brings about\n"
        "numbers = [n + 10**6 for n in range(1_500_000)]"
    ).success
    until(lambda: on_huge_pages(others) >= MOST_OF_IT)
    until(lambda: 1 in [each.step for each in runtime.snapshots()])


def test_a_state_goes_on_without_what_was_free(make_runtime: MakeRuntime) -> None:
    """Its copy lacks the memory that was released before, and its own copies have it again."""
    runtime = make_runtime(memory="2GiB")
    assert runtime.execute("import numpy as np\nblocks = [np.full(2**13, n) for n in range(400)]").success
    assert "" == runtime.execute("del blocks[3:-1]\nlast = object()").unkept
    for turn in range(2):
        runtime.snapshot()  # which is awaited
        assert "rolled_back" == runtime.execute("import os; os._exit(1)").state
        assert runtime.execute(f"more = [np.full(2**13, {turn}) for n in range(400)]").success
        assert f"{400 * turn}" == runtime.execute("int(sum(each[-1] for each in more))").value
        assert (
            "(4, 402, True)"
            == runtime.execute(
                "more = None\n(len(blocks), int(sum(each[5] for each in blocks)), type(last) is object)"
            ).value
        )
