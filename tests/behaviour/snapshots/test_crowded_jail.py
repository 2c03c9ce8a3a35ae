"""Snapshots of a jail that comes near its memory limit."""

from __future__ import annotations

import pytest
from tests.support.snapshots.fixtures import MakeRuntime

from cenote_worker.supervisor.account.jail_account import MIB, MemoryLimit


@pytest.mark.slow
def test_former_states_make_room(make_runtime: MakeRuntime) -> None:
    """Older snapshots make no cell run out of memory; labelled ones and the newest remain."""
    runtime = make_runtime(memory="256MiB")
    assert runtime.execute("import numpy as np\nfirst = 1").success
    runtime.snapshot("empty")
    assert runtime.execute(
        "a = np.ones(5 * 2**20)"
    ).success  # 40 MiB, which each further state has for itself
    for _ in range(12):
        result = runtime.execute("a = a + 1")
        assert result.success, result.error
    assert "rolled_back" == runtime.execute("import os; os._exit(1)").state
    assert "13.0" == runtime.execute("float(a[-1])").value
    runtime.rollback("empty")
    assert "False" == runtime.execute("'a' in globals()").value


def test_a_quarter_of_the_limit_is_left() -> None:
    """A quarter of the limit exactly does not count as near yet."""
    limit = MemoryLimit(policy=300 * MIB, base=100 * MIB)
    assert not limit.is_near(300 * MIB)
    assert limit.is_near(300 * MIB + 1)
