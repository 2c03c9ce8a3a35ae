"""Killing processes and waiting for their end by a process that is not their parent."""

from __future__ import annotations

import subprocess

from tests.support.processes import runs

from cenote_worker.node.machine import awaited_end


def asleep() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


def test_they_are_gone_behind_it() -> None:
    """A process that had already ended is no error."""
    first, second = asleep(), asleep()
    first.kill()
    first.wait()
    with awaited_end([first.pid, second.pid], 60):
        second.kill()
    assert not runs(second.pid)
    second.wait()


def test_one_that_does_not_end_is_not_waited_for_for_ever() -> None:
    """The caller has other work to do."""
    process = asleep()
    with awaited_end([process.pid], 0.05):
        pass
    assert runs(process.pid)
    process.kill()
    process.wait()
