"""Traces verify: where all reads of a step are unchanged, its results are unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_equal_reads_give_equal_writes(every: int) -> None:
    """For one in `every` traps of the corpus, between the program and its patched form; a build system's constructive
    traces. Each of them is patched in `tests/soundness`.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.tracking.verified_traces", str(every)],
        capture_output=True, text=True, timeout=280, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert [] == found["wrong"]
    assert found["matched"] >= 5
