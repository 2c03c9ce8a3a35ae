"""`cenote doctor --attack`: its report on the walls of the user's machine."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from cenote.cli.local.attack import LEVELS, AttemptVerdict, attack, describe
from cenote.terminal.screen import Screen


@pytest.mark.slow
def test_each_level_is_attacked() -> None:
    """Every attempt at every available level, all held, exit status 0."""
    command = [sys.executable, "-m", "cenote.cli.main", "doctor", "--attack", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    report = json.loads(done.stdout)
    assert [] == [verdict for verdict in report["verdicts"] if not verdict["held"]]
    assert 0 == done.returncode
    assert set(LEVELS) == {verdict["level"] for verdict in report["verdicts"]} | set(report["unavailable"])


def test_people_get_a_table_of_attempts() -> None:
    """Per level a line for each attempt: its reference, and what was observed, from outside or by itself."""
    out = io.StringIO()
    verdicts = [
        verdict("read_a_secret", "reading by path", outcome="EACCES", held=True),
        verdict("signal_by_pidfd", "pidfd_send_signal", breaches=("the bystander changed",)),
    ]
    describe(verdicts, {"landlock": "the kernel has none"}, Screen(out, io.StringIO()))
    assert [
        "strict: 1 of 2 held",
        "  held  read_a_secret                     EACCES          reading by path",
        "  FAIL  signal_by_pidfd                   the bystander changed  pidfd_send_signal",
        "landlock: the kernel has none",
    ] == out.getvalue().splitlines()


def verdict(
    name: str, reference: str, outcome: str = "", breaches: tuple[str, ...] = (), held: bool = False
) -> AttemptVerdict:
    return AttemptVerdict(
        level="strict", name=name, reference=reference, outcome=outcome, breaches=breaches, held=held
    )


@pytest.mark.slow
def test_what_gets_through_is_seen() -> None:
    """Without walls the secret is read, listeners are reached, files and processes change: nothing held."""
    failed = {verdict.name: verdict.breaches for verdict in attack("none") if not verdict.held}
    assert ("the secret was read",) == failed["read_a_secret"]
    assert ("the bystander changed",) == failed["signal_by_pidfd"]
    assert failed["make_entries_outside"]
    assert failed["connect_to_a_local_service"]
