"""A cell that rewrites all its memory does not pay for a snapshot to its end."""

from __future__ import annotations

from tests.snapshots.conftest import MakeRuntime


def test_a_sweep_gives_its_snapshots_up(make_runtime: MakeRuntime) -> None:
    """The result says so; the state after the cell is kept again."""
    runtime = make_runtime(memory="2GiB")
    assert runtime.execute("import numpy as np\na = np.zeros(3 * 2**25); a[:] = 1").success
    result = runtime.execute("for _ in range(3): a += 1")
    assert "given up" in result.unkept
    assert "" == runtime.execute("x = 1").unkept
    assert "rolled_back" == runtime.execute("import os; os._exit(1)").state
    assert "4.0" == runtime.execute("float(a[-1])").value


def test_an_ordinary_cell_keeps_them(make_runtime: MakeRuntime) -> None:
    """New memory is no tax, however much there is of it."""
    runtime = make_runtime(memory="2GiB")
    assert "" == runtime.execute("import numpy as np\na = np.zeros(2**25); a[:] = 1").unkept
    assert "" == runtime.execute("total = sum(range(10**6))").unkept
    assert "" == runtime.execute("b = np.ones(2**24)").unkept
