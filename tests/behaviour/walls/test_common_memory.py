"""A zygote's imported modules lie in files that its jails share: a fork has no page table entries of them to copy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.walls.fixtures import StartJail

from cenote import PythonRuntime, SandboxPolicy
from cenote_worker.supervisor.account import tree_memory
from cenote_worker.zygote.memory_layout_unsafe import is_one_stretch

STEP = 2**20 + 16
"""From one block of glibc's heap to the next."""

ANONYMOUS = """
sizes = dict(line.split(":", 1) for line in open("/proc/self/status") if line.startswith(("RssAnon", "VmData")))
print(*(int(size.split()[0]) for size in sizes.values()))
"""

SCRIPT = """
import os, sys
from cenote_worker.zygote.memory_layout_unsafe import CommonHeap, CommonLibraries, common_file

def anonymous_of(part):
    regions = open("/proc/self/smaps").read().split("VmFlags")
    return sum(int(each.split("Anonymous:")[1].split()[0]) for each in regions[:-1] if part in each)

proc = os.open("/proc", os.O_PATH)
common = common_file()
libraries, heap = CommonLibraries(proc, common), CommonHeap(common)
import numpy
kept = [[number] for number in range(200_000)]
FORKED
before = anonymous_of("numpy")
libraries.find()
heap.settle()
libraries.settle()
kept.append([0])
print(before > 0, anonymous_of("numpy"), anonymous_of("cenote-common") < 1000)
print(sum(map(sum, kept)), numpy.ones(9).sum())
"""


GAPS = """
from cenote_worker.zygote.memory_layout_unsafe import fill_gaps
kept = [bytes(40) for _ in range(100_000)]
del kept[::50]
assert fill_gaps() > 0
print(len({id(each) >> 12 for each in [bytes(40) for _ in range(1000)]}))
"""


def test_little_of_a_jail_is_memory_of_its_own() -> None:
    """numpy and pandas bring 55 MB, all of which lies in file pages, except for what every process writes."""
    with PythonRuntime(sandbox=SandboxPolicy(snapshots="none")) as runtime:
        anonymous, data = map(int, runtime.execute(ANONYMOUS).stdout.split())
    assert data > 60_000
    assert 30_000 > anonymous


def test_jails_do_not_write_into_what_they_share() -> None:
    policy = SandboxPolicy(snapshots="none")
    with PythonRuntime(sandbox=policy) as first, PythonRuntime(sandbox=policy) as second:
        first.execute("import numpy, json\nnumpy.mark = json.mark = len\njson.decoder.NaN = 1")
        asked = "import numpy, json\nprint(hasattr(numpy, 'mark'), hasattr(json, 'mark'), json.decoder.NaN)"
        assert "False False nan\n" == second.execute(asked).stdout
        with PythonRuntime(sandbox=policy) as third:
            assert "False False nan\n" == third.execute(asked).stdout


def test_values_survive_the_exchange() -> None:
    """Values are unchanged; no part of numpy's data or of a large heap is private memory any more."""
    assert "True 0 True\n19999900000 9.0\n" == ran(SCRIPT.replace("FORKED", ""))


def test_what_is_allocated_behind_the_imports_lies_side_by_side() -> None:
    """And not in free gaps between imported objects: a fork would get its own page for each."""
    assert 40 > int(ran(GAPS))


@pytest.mark.parametrize(
    ("expected", "blocks", "top"),
    [
        (True, [16, STEP + 16, 2 * STEP + 16], 4 * STEP),
        (False, [16, STEP + 16, 2 * STEP + 32], 4 * STEP),  # a small one lies in between
        (False, [16, STEP + 16, 0], 4 * STEP),  # no memory
        (False, [2 * STEP, STEP, 0], 4 * STEP),
        (False, [16, STEP + 16, 2 * STEP + 16], STEP),  # not of the heap
    ],
)
def test_only_blocks_side_by_side_are_exchanged(expected: bool, blocks: list[int], top: int) -> None:
    """Memory between two of them would be lost."""
    assert expected == is_one_stretch(8, blocks, top)


def test_an_import_that_forks_gets_memory_of_its_own() -> None:
    """A child that continues in Python must not write to its parent's memory."""
    forked = """
if os.fork() == 0:
    kept.clear()
    os._exit(0)
os.wait()
"""
    assert "19999900000 9.0" in ran(SCRIPT.replace("FORKED", forked))


@pytest.mark.skipif(os.geteuid() != 0, reason="others are told of mapped files by what a process touched")
def test_files_of_the_zygote_are_not_charged_to_a_jail(start_jail: StartJail) -> None:
    """They take memory once, however many jails map them."""
    warden = start_jail("strict").warden
    spared = tree_memory.mapped_by(warden)
    assert 0 == tree_memory.mapped_only(warden, spared)
    assert 20 * 2**20 < tree_memory.mapped_only(warden, frozenset())


def ran(script: str) -> str:
    """The output of a fresh Python: memory is exchanged once in a process's life."""
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.defpath}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=Path.cwd(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.stdout.decode() + done.stderr.decode()
