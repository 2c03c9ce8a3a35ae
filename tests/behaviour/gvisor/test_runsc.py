"""Finding runsc: its version output, and the error where it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote_security.errors import IsolationUnavailableError, UsageError
from cenote_security.network import Allow
from cenote_security.policy import SandboxPolicy
from cenote_security.walls.facilities import Facilities, Facility, resolve_isolation
from cenote_security.walls.levels import runsc_unsafe as runsc
from cenote_worker.zygote import spawn


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("runsc version 0.0~20221219.0\nspec: 1.0.2-dev\n", 20221219),  # Debian 12
        ("runsc version 0.0~20240729.0\nspec: 1.2.0\n", 20240729),  # Debian 13
        ("runsc version release-20250203.0\nspec: 1.1.0-rc.1\n", 20250203),  # gVisor's own
        ("runsc version VERSION_MISSING\nspec: 1.0.2\n", 0),
        ("", 0),
    ],
)
def test_the_date_of_a_release(text: str, date: int) -> None:
    """Debian and gVisor name releases by date, each in its own format."""
    assert date == runsc.release_date(text)


def program(folder: Path, script: str) -> str:
    path = folder / "runsc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_first_that_is_there_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its version, which decides which flags it gets."""
    path = program(tmp_path, "echo runsc version release-20240729.0")
    monkeypatch.setattr(runsc, "PLACES", (str(tmp_path / "absent"), path))
    assert runsc.Runsc(path=path, version=20240729) == runsc.find()


def test_one_that_cannot_run_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last output is in the error."""
    monkeypatch.setattr(runsc, "PLACES", (program(tmp_path, "echo no such machine >&2; exit 3"),))
    with pytest.raises(OSError, match="no such machine"):
        runsc.find()


def test_without_runsc_the_level_is_refused() -> None:
    """The error names what is missing and how to get it; `auto` neither needs nor uses this level."""
    found = tuple(
        Facility(name=name, available=True, detail="ok") for name in ("namespaces", "landlock", "seccomp")
    )
    missing = Facility(name="runsc", available=False, detail="none of ...", remedy=runsc.REMEDY)
    facilities = Facilities(found=(*found, missing))
    with pytest.raises(IsolationUnavailableError, match="apt-get install runsc"):
        resolve_isolation("gvisor", facilities)
    assert "strict" == resolve_isolation("auto", facilities)


def test_what_runsc_says_when_it_fails_reaches_the_user() -> None:
    """It reports errors as text, which is delivered where other failures arrive as data."""
    failure = spawn._parse_failure(b"running container: creating container:\ncannot create sandbox\n")
    expected = "running container: creating container: cannot create sandbox"
    assert ("start the sandbox", expected) == (failure.step, failure.detail)


def test_auto_does_not_take_it_even_where_it_is_all_there_is() -> None:
    """It is slower and has no preload, so it must be chosen explicitly."""
    names = ("namespaces", "runsc")
    facilities = Facilities(found=tuple(Facility(name=name, available=True, detail="ok") for name in names))
    assert "gvisor" == resolve_isolation("gvisor", facilities)
    with pytest.raises(IsolationUnavailableError):
        resolve_isolation("auto", facilities)


def test_no_network_at_this_level() -> None:
    """A sandbox has its own network, in which the proxy does not listen."""
    with pytest.raises(UsageError, match="gvisor"):
        SandboxPolicy(isolation="gvisor", network=Allow(["example.com"]))
