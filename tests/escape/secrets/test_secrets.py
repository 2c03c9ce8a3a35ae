"""A client full of secrets starts a jail; code in the jail searches for them everywhere and finds none."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

VICTIM = Path(__file__).resolve().parents[2] / "support" / "secrets" / "victim.py"

INSIDE = {
    "inside_argument",
    "inside_child_environment",
    "inside_environment",
    "inside_file_name",
    "inside_heap",
    "inside_memory_file",
    "inside_pipe",
    "inside_temporary_file",
    "inside_working_file",
}
"""Secrets that a jail hides in itself: the hunt must find all of them."""

HIDDEN_INSIDE = "inside_"
"""The common prefix of all their names."""

OUT_OF_SIGHT = {"inside_child_environment"}
"""At `landlock` a worker sees only its own process, not even its children."""

OUTSIDE = {
    "abstract_socket",
    "argument",
    "deleted_file",
    "environment",
    "file_name",
    "heap",
    "home_file",
    "host_locals",
    "memory_file",
    "parent_environment",
    "pipe",
    "shared_memory",
    "temporary_file",
    "unreferenced_global",
    "working_file",
}
"""Secrets that the client and its machine hide from jails."""


def hunted(level: str, folder: Path) -> dict[str, Any]:
    """The results of the hunt, by place, in the jail of a client with secrets."""
    token = secrets.token_hex(8)
    (folder / "home").mkdir()
    (folder / "tmp").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "API_KEY": f"canary-{token}-environment",
        "PARENTS_KEY": f"canary-{token}-parent_environment",
    }
    # The shell stays as a parent with one secret more in its environment; its command line holds none.
    script = 'PASSWORD="$1"; shift; env -u PARENTS_KEY "$@" "--password=$PASSWORD"; exit $?'
    command = ["sh", "-c", script, "sh", f"canary-{token}-argument", sys.executable, str(VICTIM), level]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=token,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if "IsolationUnavailableError" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert "canary" not in answer["stderr"]
    return answer


def is_inside(place: str) -> bool:
    """Whether it is the remaining part of the name of a secret that a jail has hidden in itself."""
    return place.startswith(HIDDEN_INSIDE[:1])


@pytest.mark.sweep(cases=1)
@pytest.mark.parametrize("level", ["strict", "landlock"])
def test_no_secret_is_found_in_a_jail(level: str, tmp_path: Path) -> None:
    """Nothing of the client's, its parent's or the machine's; everything that the jail itself hid is found.

    Reused memory holds parts of names that were hidden inside, followed by other bytes. No name of an outside
    secret begins like these.
    """
    found = hunted(level, tmp_path)["found"]
    assert not [place for place in OUTSIDE if place[:1] == HIDDEN_INSIDE[:1]]
    assert {} == {place: where for place, where in found.items() if not is_inside(place)}
    assert INSIDE - (OUT_OF_SIGHT if level == "landlock" else set()) <= set(found)


@pytest.mark.slow
def test_the_same_hunt_without_walls_finds_them(tmp_path: Path) -> None:
    """The control: at level `none` each secret outside is found, so that finding none is meaningful."""
    answer = hunted("none", tmp_path)
    missing = OUTSIDE - set(answer["found"])
    assert set() == missing
    assert answer["key"] == ("key" in answer["found"])
