"""Which processes belong to a tree, and how much memory they use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.runtime.process_tree import descendants
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]

HOLD_40_MB = "import sys; held = bytearray(b'x') * 40_000_000; print(flush=True); sys.stdin.read()"

WEIGH = f"""
import os, subprocess, sys
from benchmarks.runtime.process_tree import live_descendants, tree_pss
before = tree_pss()
child = subprocess.Popen([sys.executable, "-c", {HOLD_40_MB!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid in live_descendants(os.getpid()), tree_pss() - before)
child.communicate()
"""


def test_descendants_are_followed_through_all_generations() -> None:
    """Children of children belong to the tree; siblings and parents do not."""
    parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 5}
    assert {2, 3, 4} == descendants(parents, 2)


def test_memory_of_a_child_counts_in_its_parents_tree() -> None:
    """A child that holds 40 MB makes the tree at least that much heavier."""
    program = [sys.executable, "-c", WEIGH]
    weighed = subprocess.run(
        program, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE
    )
    is_below, heavier = weighed.stdout.split()
    assert "True" == is_below
    assert 40_000_000 < int(heavier)
