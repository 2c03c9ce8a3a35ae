"""Tests of `cenote doctor`: its report is true for this machine."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable

import pytest

from cenote.cli.local.doctor import describe
from cenote.runtime import PythonRuntime
from cenote.runtime.machine_report import MachineReport, try_jail
from cenote.terminal.screen import Screen
from cenote_security.walls.facilities import Facility

Cenote = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_it_names_the_isolation_that_runtimes_get(cenote: Cenote) -> None:
    """The isolation in the report is that of a runtime with the default policy. Each facility has a verdict; a
    missing one has a remedy."""
    with PythonRuntime() as runtime:
        runtime.execute("1")
        isolation = runtime.isolation
    done = cenote("doctor", "--json")
    report = json.loads(done.stdout)
    assert (0, isolation) == (done.returncode, report["isolation"])
    facilities = report["facilities"]
    assert {"namespaces", "landlock", "seccomp", "jail"} <= {facility["name"] for facility in facilities}
    assert [] == [f["name"] for f in facilities if not f["available"] and not (f["remedy"] or f["detail"])]


def test_a_whole_jail_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The final verdict comes from a cell in a jail of this machine, not of a platform that may be elsewhere."""
    monkeypatch.setenv("CENOTE_ADDRESS", "localhost:1")
    assert try_jail().available


def test_people_get_a_table() -> None:
    """One line for each facility, with yes or no; a missing one has its remedy below."""
    found = Facility(name="jail", available=True, detail="first result after 9 ms")
    missing = Facility(name="landlock", available=False, detail="ENOSYS", remedy="Boot with lsm=landlock.")
    out = io.StringIO()
    diagnosis = MachineReport(isolation="strict", remedy="", facilities=(found, missing))
    describe(diagnosis, Screen(out, io.StringIO()))
    assert [
        "isolation  strict",
        "  yes  jail      first result after 9 ms",
        "  no   landlock  ENOSYS",
        "                 Boot with lsm=landlock.",
    ] == out.getvalue().splitlines()[-4:]


def test_no_isolation_is_said() -> None:
    """Where namespaces and Landlock are missing."""
    missing = Facility(name="landlock", available=False, detail="ENOSYS", remedy="Boot with lsm=landlock.")
    out = io.StringIO()
    describe(MachineReport(isolation=None, remedy="x", facilities=(missing,)), Screen(out, io.StringIO()))
    assert "isolation  none" in out.getvalue().splitlines()
