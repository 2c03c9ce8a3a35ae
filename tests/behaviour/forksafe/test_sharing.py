"""Samples of the pages of a process and of the copy that it was forked into."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.forksafe.sharing_process import HELD

from cenote_worker.jail.process import proc_info
from cenote_worker.zygote.warden import snapshot_cost_monitor as sharing_module
from cenote_worker.zygote.warden.snapshot_cost_monitor import PageSharing, areas, shared_of, sharing


def seen(what: str) -> tuple[PageSharing, PageSharing]:
    """Before and after, in a process of its own: other threads of this one write to pages."""
    script = Path(__file__).resolve().parents[2] / "support" / "forksafe" / "sharing_process.py"
    said = subprocess.run([sys.executable, script, what], capture_output=True, check=True).stdout
    before, after = (PageSharing(**each) for each in json.loads(said))
    return before, after


def test_pages_that_were_written_to_are_counted() -> None:
    """To the nearest hundreds; the rest of the same area could be copied too."""
    before, after = seen("rewrite")
    assert abs(after.copied - before.copied - HELD // 2) < HELD // 8
    assert after.exposed > HELD // 2 - HELD // 8


def test_memory_that_the_copy_has_not_is_not_looked_at() -> None:
    """Filling an array of its own costs a cell nothing."""
    before, after = seen("fill")
    assert after.copied - before.copied < HELD // 8


UNKNOWN_REQUEST = 0xC06866FF

HELD_BY_IT = (1 << 23) // os.sysconf("SC_PAGE_SIZE")
WAITING = "held = bytearray(b'x') * (1 << 23); print(flush=True); input()"


@contextmanager
def waiting_process() -> Iterator[int]:
    """The pid of an idle process that holds its memory."""
    command = [sys.executable, "-c", WAITING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        waiting.stdout.readline()
        yield waiting.pid
        waiting.communicate(b"\n")


def test_samples_are_the_same_however_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, or in one read with everything between them."""
    with waiting_process() as pid:
        memory = areas(pid)
        together = shared_of(memory, pid)
        monkeypatch.setattr(sharing_module, "_FAR_APART", 0)
        assert together == shared_of(memory, pid)
        assert together.copied >= HELD_BY_IT // 2


def test_a_process_that_is_gone() -> None:
    """Nothing is known of it, so that no snapshot is dropped."""
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    assert PageSharing() == sharing(os.getpid(), gone)
    assert PageSharing() == sharing(gone, os.getpid())


def test_both_ways_to_look_at_memory_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before Linux 6.11, and gVisor's, lack the faster way."""
    with waiting_process() as pid:
        found = areas(pid)
        monkeypatch.setattr(proc_info, "_PROCMAP_QUERY", UNKNOWN_REQUEST)
        assert found == areas(pid)
        assert sum(map(len, found)) >= HELD_BY_IT
