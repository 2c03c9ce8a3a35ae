"""The cost of a cell is counted outside the jail."""

from __future__ import annotations

from tests.support.escape.arena import worker_of
from tests.support.limits.fixtures import StartRuntime
from tests.support.processes import kill
from tests.waiting import until

from cenote.runtime import CellUsage

MIB = 2**20


def test_a_cell_that_works(start_runtime: StartRuntime, mode: str) -> None:
    """CPU, memory and bytes written are the cell's own, and the next cell starts from zero."""
    runtime = start_runtime(limits=mode)
    usage = runtime.execute(
        "import time\n"
        "data = b'x' * (20 << 20)\n"
        "open('file', 'wb').write(data)\n"
        "while time.process_time() < 0.1: pass\n"
        "print('done')"
    ).usage
    assert usage.cpu > 0.05
    assert usage.wall >= usage.cpu / 4
    assert usage.peak_memory >= 20 * MIB
    assert 20 * MIB <= usage.bytes_written <= 21 * MIB
    assert 5 == usage.output_bytes
    after = runtime.execute("del data").usage
    assert after.bytes_written < MIB
    assert after.cpu < usage.cpu
    assert 0 == after.output_bytes


def test_a_child_s_memory_counts(start_runtime: StartRuntime, site: object) -> None:
    """A control group sees the whole jail."""
    source = """
import os
if not os.fork():
    data = bytearray(b"x" * (60 << 20))
    os._exit(0)
os.wait()"""
    assert start_runtime(limits="cgroup").execute(source).usage.peak_memory >= 60 * MIB


def test_a_cell_that_took_its_jail_with_it(start_runtime: StartRuntime, mode: str) -> None:
    """Its usage is still reported."""
    usage = start_runtime(limits=mode).execute("import os\nprint('x')\nos._exit(1)").usage
    assert usage.wall > 0
    assert 2 == usage.output_bytes


def test_a_cell_that_did_not_run(start_runtime: StartRuntime) -> None:
    """Zeros, not the numbers of another cell."""
    runtime = start_runtime(cell_timeout=None, snapshots="none")
    runtime.execute("1")
    kill(worker_of(runtime))
    until(lambda: not runtime.core.running)
    assert CellUsage() == runtime.execute("1").usage
