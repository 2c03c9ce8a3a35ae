"""The script that runs in a rival's environment: reads cases as JSON lines and writes each result as a JSON line.

Each case runs in a fork of this process, in an empty folder, so that cases do not affect each other.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

LIMIT = 120.0
NOTE = 300
WORK = "work"
"""Name of the folder that a case works in; programs may read it."""


class RefusedError(Exception):
    """The rival reports that it does not support such a program, before it gives a wrong answer."""


class Case:
    """cells: of a program. step: the patched one, from 1. code: its new code. look: the expression to evaluate."""

    def __init__(self, cells: list[str], step: int, code: str, look: str) -> None:
        self.cells = cells
        self.step = step
        self.code = code
        self.look = look

    @property
    def patched(self) -> list[str]:
        return [*self.cells[: self.step - 1], self.code, *self.cells[self.step :]]


Full = Callable[[list[str], str], str]
"""Maps cells and a look to the look's repr after all cells have run in order."""
Patched = Callable[[Case], "tuple[str, str, int]"]
"""Returns the look before and after the patch, and the number of cells run for it. Raises RefusedError."""


def serve(full: Full, patched: Patched, descriptor: int) -> None:
    """Answers are `[reached, wanted, found, cells run, note]`, reached being ran, refused or broke.

    A system whose result before the patch differs from that of a full run counts as broken.
    """
    with os.fdopen(descriptor, "w", buffering=1) as out:
        for line in sys.stdin:
            case = Case(**json.loads(line))
            out.write(json.dumps(_play(case, full, patched)) + "\n")


def _play(case: Case, full: Full, patched: Patched) -> list[object]:
    wanted: list[str] = []
    for cells in (case.cells, case.patched):
        reached, found = _aside(partial(_listed, full, cells, case.look))
        if reached != "ran":
            return [reached, "", "", 0, f"a full run: {found[0]}"]
        wanted.append(str(found[0]))
    reached, found = _aside(lambda: list(patched(case)))
    if reached != "ran":
        return [reached, wanted[1], "", 0, found[0]]
    before, after, ran = found
    if _plain(str(before)) != _plain(wanted[0]):
        return ["broke", wanted[1], after, ran, f"before the patch: {before} instead of {wanted[0]}"]
    return ["ran", wanted[1], after, ran, ""]


def _listed(full: Full, cells: list[str], look: str) -> list[object]:
    return [full(cells, look)]


def _plain(text: str) -> str:
    return re.sub(r"\b0x[0-9a-f]+", "", text)


def _aside(work: Callable[[], list[object]]) -> tuple[str, list[object]]:
    """Runs in a fork: returns `ran` and the result, or `refused` or `broke` and the reason."""
    folder = tempfile.mkdtemp(prefix="trap-")
    (Path(folder) / WORK).mkdir()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.chdir(f"{folder}/{WORK}")
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
