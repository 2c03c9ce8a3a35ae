"""`cenote doctor --attack`: what a user is told about the walls of their own machine."""

from __future__ import annotations

import json
import subprocess
import sys

from cenote.cli.attack import LEVELS, attack


def doctor(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cenote.cli.main", "doctor", "--attack", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=90)


def test_each_level_is_attacked() -> None:
    """Every attempt at every level that is there, all held, exit status 0."""
    done = doctor("--json")
    report = json.loads(done.stdout)
    assert [] == [verdict for verdict in report["verdicts"] if not verdict["held"]]
    assert 0 == done.returncode
    assert set(LEVELS) == {verdict["level"] for verdict in report["verdicts"]} | set(report["unavailable"])


def test_people_get_a_table_of_attempts() -> None:
    """One line per attempt, with what it is known as."""
    lines = doctor().stdout.splitlines()
    assert any("held  read_a_secret" in line and "reading by path" in line for line in lines)
    assert not any("FAIL" in line for line in lines)


def test_what_gets_through_is_seen() -> None:
    """Without walls the secret is read, listeners are reached, files and processes change: none of it held."""
    failed = {verdict.name: verdict.breaches for verdict in attack("none") if not verdict.held}
    assert ("the secret was read",) == failed["read_a_secret"]
    assert ("the bystander changed",) == failed["signal_by_pidfd"]
    assert failed["make_entries_outside"]
    assert failed["connect_to_a_local_service"]
