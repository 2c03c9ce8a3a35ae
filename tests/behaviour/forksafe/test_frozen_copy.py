"""Tests of `cenote_worker.jail.forking.frozen_copy`: when a checkpoint is made in a copy of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

WHERE = """
import ctypes, os, threading
from cenote_worker.jail.forking.frozen_copy import FrozenCopies

def where():
    told, telling = os.pipe()
    def work(tell):
        os.write(telling, b"in place" if os.getpid() == here else b"in a copy")
        tell()
    FrozenCopies().run(work)
    return os.read(told, 20).decode()

here = os.getpid()
"""

PYTHON = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
"""Lost in the copy, where it is not needed."""

NATIVE = (
    "libc = ctypes.CDLL(None); libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)"
)
"""A thread of no library known to survive a fork."""

UNUSED = "import duckdb"
"""Its threads start with the first connection, in the copy too."""

USED = "duckdb.connect().execute('select 1')"


@pytest.mark.parametrize(
    ("expected", "threads"),
    [
        ("in a copy", PYTHON),
        ("in place", NATIVE),
        ("in a copy", UNUSED),
        ("in place", f"{UNUSED}; database = {USED}"),
    ],
)
def test_a_copy_is_made_where_libraries_survive_it(expected: str, threads: str) -> None:
    """Running threads count, not imported libraries; Python's threads have no state of their own to lose."""
    if UNUSED in threads:
        pytest.importorskip("duckdb")
    program = f"{WHERE}{threads}\nprint(where(), flush=True); os._exit(0)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert expected == found.stdout.strip(), found.stderr
