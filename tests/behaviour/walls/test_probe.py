"""The probe tries each facility and reports the result; a failing attempt harms nothing."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import sys
import threading

import pytest

from cenote_security.walls.facilities import NEEDS
from cenote_security.walls.probe import probe
from cenote_security.walls.trials import attempt


def test_every_facility_is_tried() -> None:
    """Those that the levels need are among them; a missing one comes with a remedy; threads are no obstacle."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        facilities = probe()
    finally:
        stop.set()
        thread.join()
    names = [facility.name for facility in facilities.found]
    assert len(names) == len(set(names)) > 15
    assert {name for needed in NEEDS.values() for name in needed} <= set(names)
    assert [] == [f.name for f in facilities.found if not f.detail or (not f.available and not f.remedy)]


def test_an_attempt_that_works() -> None:
    """Its text is the detail."""
    facility = attempt("trick", lambda: "done with mirrors", "practise")
    assert (True, "done with mirrors", "") == (facility.available, facility.detail, facility.remedy)


def test_an_attempt_that_the_kernel_refuses() -> None:
    """The kernel's message is the detail, and the remedy is given."""

    def refused() -> str:
        raise OSError(errno.EPERM, "Operation not permitted", "unshare")

    facility = attempt("trick", refused, "ask root")
    assert (False, "ask root") == (facility.available, facility.remedy)
    assert "Operation not permitted" in facility.detail


def test_an_attempt_that_dies() -> None:
    """A kernel that kills for a call (a seccomp filter of a container does) is an answer too."""

    def dies() -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return "survived"

    facility = attempt("trick", dies)
    assert (False, "the attempt ended with -9") == (facility.available, facility.detail)


COVERED = "mount -t tmpfs none /proc/fs && exec {python} -c {code}"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to cover a part of /proc")
def test_a_covered_proc_leaves_no_strict() -> None:
    """As in most containers: the kernel then refuses a jail its own `/proc`, and `auto` takes the next level."""
    code = "from cenote import PythonRuntime\nwith PythonRuntime() as r: print(r.execute('6 * 7').value, r.isolation)"
    command = COVERED.format(python=shlex.quote(sys.executable), code=shlex.quote(code))
    asked = ["unshare", "--mount", "--propagation", "private", "sh", "-c", command]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert ("42 landlock\n", "") == (done.stdout, done.stderr)
