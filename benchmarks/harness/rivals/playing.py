"""Runs the traps on rivals, each in a process of its own environment."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from tests.support.soundness.trap import Trap

from benchmarks.harness.outcome import Outcome, Played
from benchmarks.harness.rivals.far_end import LIMIT
from benchmarks.rivals import ROOT, interpreter


@dataclass(frozen=True, kw_only=True)
class Rival:
    """name: of its environment and its script. asked: what was requested of it, for the report."""

    name: str
    asked: str


RIVALS = (
    Rival(
        name="ipyflow",
        asked="cells run in order; reactive mode on; the cell edited and executed; what it runs then",
    ),
    Rival(
        name="marimo", asked="all cells run, automatic running on; the cell edited and run; what it runs then"
    ),
    Rival(
        name="flowbook",
        asked="cells run in order; the cell edited; what it calls stale run until it is clean",
    ),
    Rival(
        name="kishu", asked="a checkout of the state before the cell; that cell and all behind it run again"
    ),
)

Progress = Callable[[str, Outcome], None]


def play(rival: Rival, traps: Sequence[Trap], progress: Progress) -> Played:
    """Runs all traps on one rival in sequence."""
    try:
        python = interpreter(rival.name)
    except ImportError as error:
        return Played(system=rival.name, asked=rival.asked, missing=str(error))
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as errors:
        reading, writing = os.pipe()
        far_end = subprocess.Popen(
            [python, "-m", f"benchmarks.harness.rivals.{rival.name}_far", str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=[writing],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": scratch, "HOME": scratch},
        )
        os.close(writing)
        assert far_end.stdin is not None
        with os.fdopen(reading) as answers, far_end.stdin as questions:
            for trap in traps:
                outcomes.append(_ask(trap, questions, answers))
                progress(rival.name, outcomes[-1])
        far_end.wait()
    return Played(system=rival.name, asked=rival.asked, outcomes=outcomes)


def _ask(trap: Trap, questions: IO[bytes], answers: IO[str]) -> Outcome:
    case = {"cells": trap.cells, "step": trap.step, "code": trap.code, "look": trap.look}
    try:
        questions.write(json.dumps(case).encode() + b"\n")
        questions.flush()
    except BrokenPipeError:
        return Outcome(trap=trap.name, verdict="broke", note="its far end has died")
    ready, _, _ = select.select([answers], [], [], 3 * LIMIT)
    line = answers.readline() if ready else ""
    if not line:
        return Outcome(trap=trap.name, verdict="broke", note="its far end does not answer")
    reached, wanted, found, cells, note = json.loads(line)
    if reached == "ran":
        return Outcome.judged(trap.name, wanted, found, cells)
    return Outcome(trap=trap.name, verdict="refused" if reached == "refused" else "broke", note=note)
