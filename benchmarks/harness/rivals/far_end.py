"""What runs in a rival's environment: cases come in as lines of JSON, what came of each goes out the same way.

Each case is played in a fork of this process, in an empty folder: nothing of one is left for the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable

LIMIT = 120.0
NOTE = 300


class RefusedError(Exception):
    """The rival does not take such a program, and says so: by design, before it gives a wrong answer."""


class Case:
    """cells: of a program. step: which is patched, from 1. code: what it becomes. look: what is asked afterwards."""

    def __init__(self, cells: list[str], step: int, code: str, look: str) -> None:
        self.cells = cells
        self.step = step
        self.code = code
        self.look = look

    @property
    def patched(self) -> list[str]:
        return [*self.cells[: self.step - 1], self.code, *self.cells[self.step :]]


Full = Callable[[list[str], str], str]
"""Cells and a look to the look's repr: all of them run in order, from the beginning."""
Patched = Callable[[Case], "tuple[str, int]"]
"""What the look gives after the patch, and how many cells have run for it. Raises RefusedError."""


def serve(full: Full, patched: Patched, descriptor: int) -> None:
    """Answers are `[reached, wanted, found, cells run, note]`, reached being ran, refused or broke."""
    with os.fdopen(descriptor, "w", buffering=1) as out:
        for line in sys.stdin:
            case = Case(**json.loads(line))
            out.write(json.dumps(_play(case, full, patched)) + "\n")


def _play(case: Case, full: Full, patched: Patched) -> list[object]:
    reached, wanted = _aside(lambda: [full(case.patched, case.look)])
    if reached != "ran":
        return [reached, "", "", 0, f"a full run: {wanted[0]}"]
    reached, found = _aside(lambda: list(patched(case)))
    return [reached, wanted[0], *found, ""] if reached == "ran" else [reached, wanted[0], "", 0, found[0]]


def _aside(work: Callable[[], list[object]]) -> tuple[str, list[object]]:
    """In a fork: `ran` and what it gave, or `refused` or `broke` and why."""
    folder = tempfile.mkdtemp(prefix="trap-")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.chdir(folder)
        os.setpgid(0, 0)
        random.seed()
        _answer(work, writing)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], LIMIT)
    with os.fdopen(reading) as pipe:
        line = pipe.readline() if ready else ""
    _end(child)
    shutil.rmtree(folder, ignore_errors=True)
    if not line:
        return "broke", [f"no answer within {LIMIT:.0f} s" if not ready else "its process died"]
    reached, found = json.loads(line)
    return reached, found


def _answer(work: Callable[[], list[object]], writing: int) -> None:
    try:
        answer = ["ran", work()]
    except RefusedError as error:
        answer = ["refused", [str(error)[:NOTE]]]
    except BaseException as error:
        traceback.print_exc()
        answer = ["broke", [f"{type(error).__name__}: {error}"[:NOTE]]]
    os.write(writing, json.dumps(answer).encode() + b"\n")
    os._exit(0)


def _end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
