"""The Python at the other end of a sandbox's pipes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.jail.sandbox import CellFailedError, DoesNotRunHereError
from benchmarks.jail.sandboxes.piped import NoSandbox, Piped

ROOT = Path(__file__).resolve().parents[3]


class Broken(Piped):
    """A sandbox that ends at once, with a reason."""

    def command(self) -> list[str]:
        return ["sh", "-c", "echo no namespaces here >&2"]


class Missing(Piped):
    def command(self) -> list[str]:
        return ["no-such-sandbox"]


LEAVES_ITS_CHILD = """
import os
from benchmarks.jail.sandboxes.piped import PYTHON, Piped
from benchmarks.runtime.process_tree import adopt_orphans, live_descendants

WRAPPER = (
    "import os, sys\\n"
    "child = os.fork() or os.execv(sys.argv[1], sys.argv[1:])\\n"
    "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)"
)

class LeavesItsChild(Piped):
    def command(self):
        return [PYTHON[0], "-c", WRAPPER, *PYTHON]

adopt_orphans()
sandbox = LeavesItsChild("/dev/shm")
sandbox.execute("pass")
before = len(live_descendants(os.getpid()))
sandbox.close()
print(before, len(live_descendants(os.getpid())))
"""
"""A wrapper that notices the end of its child without waiting for it, as some sandboxes do."""


def test_cells_share_a_namespace_and_give_what_they_print() -> None:
    """As cells of a runtime do."""
    with closing(NoSandbox("/dev/shm")) as sandbox:
        assert "" == sandbox.execute("x = 6")
        assert "42\n" == sandbox.execute("print(x * 7)")


def test_a_cell_that_fails_is_no_figure() -> None:
    """The error names it; the sandbox continues."""
    with closing(NoSandbox("/dev/shm")) as sandbox:
        with pytest.raises(CellFailedError, match="ZeroDivisionError"):
            sandbox.execute("1 / 0")
        assert "ok\n" == sandbox.execute("print('ok')")


def test_a_sandbox_that_ends_tells_why() -> None:
    """Its stderr output is the reason in the report."""
    with (
        closing(Broken("/dev/shm")) as sandbox,
        pytest.raises(DoesNotRunHereError, match="no namespaces here"),
    ):
        sandbox.execute("pass")


def test_a_sandbox_that_is_not_installed_is_named() -> None:
    """The benchmark continues without it."""
    with pytest.raises(DoesNotRunHereError, match="no-such-sandbox is not installed"):
        Missing("/dev/shm")


def test_nobody_is_left_unburied() -> None:
    """If orphans are adopted, those of a sandbox are waited for at its end."""
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_ITS_CHILD],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "3 1\n" == done.stdout
