"""Counters shared by processes: limits, killed processes, changes of the limit."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote_security.errors import QuotaExceededError
from cenote_worker.tenancy.machine_quotas import MachineQuotas, SharedCounter
from cenote_worker.tenancy.shared_quota import SharedQuota, parted

CELLS = SharedQuota.CELLS

HOLD = """
import sys
from pathlib import Path
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.tenancy.shared_quota import SharedQuota
MachineQuotas(Path(sys.argv[1])).tally("acme", SharedQuota.CELLS).take(int(sys.argv[2]))
print("taken", flush=True)
sys.stdin.read()
"""


def machine(folder: Path, limit: int | None = None) -> SharedCounter:
    """As another process would open it: with a separate open file."""
    quotas = MachineQuotas(folder)
    if limit is not None:
        quotas.limit({"acme": {CELLS: limit}})
    return quotas.tally("acme", CELLS)


def test_what_could_not_be_counted_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never be released."""
    one = machine(tmp_path, 1)

    def full(*_given: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="no space"):
            one.take(1)
    one.take(1)
    assert 1 == one.used
    one.release(1)
    assert (0, 0) == (one.used, machine(tmp_path).used)


def test_the_limit_is_reached_and_not_passed(tmp_path: Path) -> None:
    """By two processes together; a released place is available to the other one."""
    one, other = machine(tmp_path, 3), machine(tmp_path)
    one.take(2)
    other.take(1)
    with pytest.raises(QuotaExceededError) as refused:
        one.take(1)
    assert ("cells", 3, 1, 3) == (
        refused.value.quota,
        refused.value.used,
        refused.value.asked,
        refused.value.limit,
    )
    other.release(1)
    one.take(1)
    assert (3, 3) == (one.used, other.used)


def test_what_a_killed_process_had_is_free_again(tmp_path: Path) -> None:
    """Automatically: the kernel releases its lock."""
    mine = machine(tmp_path, 3)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert b"taken\n" == process.stdout.readline()
        with pytest.raises(QuotaExceededError):
            mine.take(1)
        process.kill()
    mine.take(3)
    assert 3 == mine.used


def test_a_place_of_a_process_that_ended_is_used_again(tmp_path: Path) -> None:
    """So the file does not grow with each process that ever existed."""
    for _ in range(5):
        tally = machine(tmp_path)
        tally.take(1)
        tally.close()
    assert 16 == os.stat(tmp_path / "acme.cells").st_size


def test_a_lower_limit_takes_nothing_away(tmp_path: Path) -> None:
    """It admits nothing more; a removed limit admits everything."""
    tally = machine(tmp_path)
    tally.take(5)
    tally.limit(3)
    tally.release(2)
    with pytest.raises(QuotaExceededError):
        tally.take(1)
    tally.limit(None)
    tally.take(100)
    assert 103 == tally.used


def test_what_is_known_elsewhere_counts_too(tmp_path: Path) -> None:
    """Like shared values, which outlive the process that shared them."""
    tally = machine(tmp_path, 10)
    tally.take(4, lambda: 6)
    with pytest.raises(QuotaExceededError) as refused:
        tally.take(1, lambda: 6)
    assert 10 == refused.value.used


def test_tenants_do_not_share_a_limit(tmp_path: Path) -> None:
    """One that has used up its own limit does not affect others."""
    quotas = MachineQuotas(tmp_path)
    quotas.limit({"acme": {CELLS: 0}})
    with pytest.raises(QuotaExceededError):
        quotas.tally("acme", CELLS).take(1)
    quotas.tally("rival", CELLS).take(1)
    quotas.tally("acme", SharedQuota.STORED).take(1)


@pytest.mark.parametrize("folder", [True, False])
def test_threads_never_have_more_than_the_limit(tmp_path: Path, *, folder: bool) -> None:
    """Of one process or of two: at no time, for concurrent requests."""
    quotas = MachineQuotas(tmp_path if folder else None)
    quotas.limit({"acme": {CELLS: 4}})
    tallies = [quotas.tally("acme", CELLS), machine(tmp_path) if folder else quotas.tally("acme", CELLS)]
    having, most, lock = 0, 0, threading.Lock()

    def work(number: int) -> int:
        nonlocal having, most
        tally = tallies[number % 2]
        try:
            tally.take(1)
        except QuotaExceededError:
            return 0
        with lock:
            having += 1
            most = max(most, having)
        os.sched_yield()
        with lock:
            having -= 1
        tally.release(1)
        return 1

    with ThreadPoolExecutor(8) as pool:
        carried_out = sum(pool.map(work, range(2_000)))
    assert 0 < most <= 4
    assert (0, True) == (tallies[0].used, carried_out > 0)


@given(limit=st.integers(0, 2**40), machines=st.integers(1, 1_000))
def test_parts_of_machines_make_the_limit(limit: int, machines: int) -> None:
    """Never less than the limit, and more by less than one for each machine."""
    together = parted({CELLS: limit}, machines)[CELLS] * machines
    assert limit <= together < limit + machines


def test_what_ends_behind_the_close_touches_no_file(tmp_path: Path) -> None:
    """A cell may outlive its counter; by then another file may have the descriptor's number."""
    quotas = MachineQuotas()
    counted = quotas.tally("acme", CELLS)
    counted.take(1)
    quotas.close()
    with (tmp_path / "another").open("wb") as file:  # the lowest free number, which was the tally's
        counted.release(1)
        assert 0 == os.fstat(file.fileno()).st_size
