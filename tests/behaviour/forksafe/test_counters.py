"""The kernel's counters of a process, read repeatedly from files that were opened once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from mmap import PAGESIZE, mmap

import pytest
from tests.support.descriptors import opened

from cenote_worker.zygote.warden.snapshot_cost_monitor import Counters

PAGES = 200


@pytest.fixture
def counters() -> Iterator[Counters]:
    made = Counters()
    yield made
    made.close()


def test_each_look_is_at_what_is_now(counters: Counters) -> None:
    before = counters.sample(os.getpid(), 0.0)
    with mmap(-1, PAGES * PAGESIZE) as memory:
        memory.write(bytes(len(memory)))
        after = counters.sample(os.getpid(), 0.0)
    assert before is not None
    assert after is not None
    assert after.faults > before.faults
    assert counters.waited(os.getpid()) >= 0.0


def test_the_next_process_has_its_own(counters: Counters) -> None:
    """And the files of the one before are closed. Of an ended process nothing is known."""
    counters.sample(os.getpid(), 0.0)
    assert opened(f"/proc/{os.getpid()}/")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        assert counters.sample(other.pid, 0.0) is not None
        assert [] == opened(f"/proc/{os.getpid()}/")
    assert counters.sample(other.pid, 0.0) is None
    assert counters.waited(other.pid) == 0.0
    assert counters.sample(os.getpid(), 0.0) is not None
