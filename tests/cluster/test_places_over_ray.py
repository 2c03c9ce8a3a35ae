"""Teams and jobs that Ray actors work on, where not all can be: some wait, and what takes long makes room."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(920)  # ten starts of Ray actors, on a machine with much else to do


@pytest.mark.slow
def test_one_place_for_each_kind() -> None:
    """Beside the job, or team, that has the only place no other has an actor. The job makes room behind the task that
    it is at, and is done later: nothing of it is done twice. A team is worked on to its end. What nobody was
    begun for, since the database was away, is worked on.
    """
    with tempfile.TemporaryDirectory(prefix="places-", dir="/tmp") as folder:  # short, for Ray's sockets
        command = [sys.executable, "-m", "tests.cluster.places_over_ray", folder]
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
