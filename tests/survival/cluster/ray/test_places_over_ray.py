"""Teams and jobs on Ray actors, where not all can run: some wait, and long ones make way."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]

pytestmark = pytest.mark.timeout(920)  # ten starts of Ray actors, on a busy machine


@pytest.mark.slow
def test_one_place_for_each_kind() -> None:
    """While a job, or team, has the only slot, no other one has an actor. The job yields after its current task, and
    is finished later: nothing of it is done twice. A team runs to its end. Work that got no actor because the
    database was away is done later.
    """
    with tempfile.TemporaryDirectory(prefix="places-", dir="/tmp") as folder:  # short, for Ray's sockets
        command = [sys.executable, "-m", "tests.support.cluster.places_over_ray", folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert 0 == done.returncode, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert {
        "waits": "waiting",
        "actors": 1,
        "ends": ["done", "done"],
        "results": [["First.", 1, 0], ["'b'", 1, 0], ["'c'", 1, 0]],
        "made_room": True,
    } == told["jobs"]
    assert {"states": ["running", "waiting", "waiting"], "actors": 1, "answers": ["done"] * 3} == told[
        "teams"
    ]
    assert "done" == told["unasked"]
