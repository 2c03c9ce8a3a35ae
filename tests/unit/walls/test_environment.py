"""A jail's environment variables, computed by a pure function."""

from __future__ import annotations

import pytest

from cenote_security.policy import SandboxPolicy
from cenote_security.walls.limits import OPEN_FILES, jail_environment, table
from cenote_security.walls.root import cpu_files, etc_files


@pytest.mark.parametrize(("cpus", "whole"), [(0.25, 1), (1.0, 1), (1.01, 2), (8, 8)])
def test_thread_pools_have_the_policy_s_size(cpus: float, whole: int) -> None:
    """A fraction of a CPU counts as a whole one."""
    assumed = SandboxPolicy(cpus=cpus).whole_cpus
    assert whole == assumed
    variables = jail_environment(workdir="/w", temporary="/t", programs="/p", whole_cpus=assumed, extra={})
    assert {str(whole)} == {
        text for name, text in variables.items() if name.endswith(("_THREADS", "_CPU_COUNT"))
    }


def test_the_policy_wins() -> None:
    """It may replace any variable, and add its own."""
    extra = {"HOME": "/else", "A": "b"}
    variables = jail_environment(workdir="/w", temporary="/t", programs="/p", whole_cpus=1, extra=extra)
    assert ("/else", "b", "/t") == (variables["HOME"], variables["A"], variables["TMPDIR"])


def test_the_interpreter_s_programs_come_first() -> None:
    """`python` is the interpreter that runs the cell."""
    variables = jail_environment(workdir="/w", temporary="/t", programs="/p/bin", whole_cpus=1, extra={})
    assert "/p/bin" == variables["PATH"].split(":")[0]


def test_limits() -> None:
    """One process more than the policy's, the warden; a file may be as large as memory or disk."""
    import resource

    limits = table(memory=300, disk=200, processes=10)
    assert ((300, 300), (300, 300)) == (limits[resource.RLIMIT_DATA], limits[resource.RLIMIT_FSIZE])
    assert ((11, 11), (OPEN_FILES,) * 2) == (limits[resource.RLIMIT_NPROC], limits[resource.RLIMIT_NOFILE])
    assert (1, 1) == limits[resource.RLIMIT_CORE]


def test_synthesised_files() -> None:
    """One user with a home, a host name, no resolver; processors as a range."""
    files = etc_files(1000, "/home")
    assert files["/etc/passwd"].startswith("cave:x:1000:1000:cave:/home:")
    assert ("", "0\n", "0-3\n") == (files["/etc/resolv.conf"], cpu_files(1)["online"], cpu_files(4)["online"])
