"""Memory that is free, and that a copy does without."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.jail.snapshots.memory import PIECE, Withheld

PAGES = 8192
"""Pages that the program has freed."""


def said(what: str) -> Any:
    """Runs in a process of its own: other threads of this one allocate memory."""
    script = Path(__file__).resolve().parents[2] / "support" / "forksafe" / "free_memory_process.py"
    return json.loads(subprocess.run([sys.executable, script, what], capture_output=True, check=True).stdout)


def test_who_uses_it_again_copies_next_to_nothing() -> None:
    """Otherwise every page of garbage would be copied; only less than a piece is left to that."""
    assert said("writer") < PAGES // 8


def test_a_copy_gets_new_memory_in_its_place() -> None:
    """It has no memory there until then; allocated memory is unchanged, in its own forks, too."""
    assert [True] * 4 == said("copy")


def test_looking_for_it_does_not_make_the_heap_grow() -> None:
    """By at most a piece, however often."""
    assert said("growth") <= 2 * PIECE


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOMEM])
def test_a_kernel_that_refuses(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a fork has it like all other memory, and ranges excluded before the failure are included again."""
    asked, released = list[int](), list[int]()

    def refuse(_start: int, _size: int, advice: int) -> None:
        asked.append(advice)
        if advice == libc.MADV_DONTFORK:
            raise OSError(code, os.strerror(code), "madvise")

    monkeypatch.setattr(libc, "madvise", refuse)
    monkeypatch.setattr(libc, "release", released.append)
    blocks = [range(first + 16, first + PIECE) for first in (0, 3 * PIECE)]
    withheld = Withheld(blocks)
    assert [libc.MADV_DONTFORK, libc.MADV_DOFORK] == asked
    assert withheld.size == 0
    withheld.give_back()
    assert [block.start for block in blocks] == released


def test_what_is_mapped_already_is_not_mapped_over() -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EEXIST)):
        libc.map_zeros(id(PIECE) & -4096, 4096)
