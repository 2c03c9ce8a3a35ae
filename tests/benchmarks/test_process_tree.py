"""Which processes belong to a tree, and what they weigh."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.runtime.process_tree import descendants, live_descendants, tree_pss

HOLD_200_MB = "import sys; held = bytearray(b'x') * 200_000_000; print(flush=True); sys.stdin.read()"


def test_descendants_are_followed_through_all_generations() -> None:
    """Children of children belong to the tree; siblings and parents do not."""
    parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 5}
    assert {2, 3, 4} == descendants(parents, 2)


def test_memory_of_a_child_counts_in_its_parents_tree() -> None:
    """One that holds 200 MB makes the tree heavier, whatever else the tests let go of at that moment."""
    before = tree_pss()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_200_MB], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in live_descendants(os.getpid())
        assert 100_000_000 < tree_pss() - before
        child.communicate()
