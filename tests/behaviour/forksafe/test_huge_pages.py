"""Memory that is put on huge pages before it is copied."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.jail.snapshots.memory import HUGE, HugePages

MOST_OF_IT = 64 * 2**20
"""Two thirds: the ends of each region of memory lie on no huge page, and the kernel places the regions."""

needs_collapsing = pytest.mark.skipif(
    tuple(map(int, os.uname().release.split(".")[:2])) < (6, 1), reason="the kernel has no MADV_COLLAPSE"
)


def on_huge_pages(what: str) -> list[int]:
    """Bytes before, after, and after a fork, in a process of its own: this one has other activity."""
    script = Path(__file__).resolve().parents[2] / "support" / "forksafe" / "huge_pages_process.py"
    said = subprocess.run([sys.executable, script, what], capture_output=True, check=True).stdout
    found: list[int] = json.loads(said)
    return found


@needs_collapsing
def test_what_has_become_much_is_moved() -> None:
    """Python's own objects, for which no huge pages are requested. A fork leaves them there, unless written to."""
    before, after, behind_a_fork = on_huge_pages("alone")
    assert before == 0
    assert after >= MOST_OF_IT
    assert behind_a_fork >= after - MOST_OF_IT // 4


@pytest.mark.parametrize("what", ["shared", "busy"])
def test_what_is_left_where_it_is(what: str) -> None:
    """Memory shared with a copy would be duplicated; and a waiting request comes first."""
    assert [0, 0, 0] == on_huge_pages(what)


@pytest.mark.parametrize(("code", "asked"), [(errno.EINVAL, 1), (errno.ENOMEM, 2), (errno.EAGAIN, 4)])
def test_a_kernel_that_refuses(code: int, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked again if it lacks the call, but is after a lack of memory; regions in use are skipped."""
    calls = []

    def refuse(start: int, _size: int, _advice: int) -> None:
        calls.append(start)
        raise OSError(code, os.strerror(code))

    module = sys.modules[HugePages.__module__]
    monkeypatch.setattr(libc, "madvise", refuse)
    monkeypatch.setattr(module, "own_memory", lambda: 2**30)
    monkeypatch.setattr(module, "_candidates", lambda: iter([HUGE, 2 * HUGE]))
    pages = HugePages()
    for _ in range(2):
        pages.gather(lambda: True, alone=True)
    assert asked == len(calls)
