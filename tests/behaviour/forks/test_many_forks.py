"""Many forks of one source, one after the other: each is exact, and nothing is left of one that was closed."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from tests.support.descriptors import opened
from tests.waiting import until

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")

AT_ONCE = 10
GROWTH = 64 * 2**20
"""Bytes that this process may grow by, whatever the number of forks."""


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    "count",
    [20, pytest.param(2000, marks=[pytest.mark.long, pytest.mark.timeout(7200)])],
)
def test_each_goes_on_where_the_source_is(count: int) -> None:
    """Which has gone on by then, and closes no descriptor late."""
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as source:
        assert source.execute("numbers = iter(range(1_000_000)); mine = []").success
        before, resident = 0, 0
        for turn in range(count // AT_ONCE):
            assert f"{turn}" == source.execute("at = next(numbers); at").value
            made = source.fork(count=AT_ONCE)
            try:
                for each in made:
                    assert each.carried is not None
                    assert ("exact", "") == (each.carried.how, each.carried.reason)
                    assert (
                        f"({turn}, {turn + 1}, [])"
                        == each.execute(
                            "mine_was = list(mine); mine.append(1); at, next(numbers), mine_was"
                        ).value
                    )
            finally:
                for each in made:
                    each.close()
            if not turn:
                before, resident = len(opened()), _resident()
            until(lambda most=before: len(opened()) <= most)  # type: ignore[misc]
            assert _resident() < resident + GROWTH
        assert "[]" == source.execute("mine").value
