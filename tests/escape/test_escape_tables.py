"""The tables as a whole: many techniques, each with a reference and a unique name."""

from __future__ import annotations

from tests.support.escape import (
    attempts_bombs,
    attempts_files,
    attempts_kernel,
    attempts_network,
    attempts_processes,
    attempts_rules,
    attempts_tampering,
    attempts_values,
)

from cenote_security.attacks import short_set_unsafe
from cenote_security.attacks.escape_attempt import DONE, EscapeAttempt, Family

MODULES = (
    attempts_bombs, attempts_files, attempts_kernel, attempts_network, attempts_processes, attempts_rules,
    attempts_tampering, attempts_values, short_set_unsafe,
)  # fmt: skip
ATTEMPTS: list[EscapeAttempt] = [
    attempt
    for module in MODULES
    for family in vars(module).values()
    if isinstance(family, Family)
    for attempt in family.attempts
]


def test_there_are_many_and_no_two_are_one() -> None:
    """At least 120, no name and no reference twice."""
    assert len(ATTEMPTS) >= 120
    assert len(ATTEMPTS) == len({attempt.name for attempt in ATTEMPTS})
    assert len(ATTEMPTS) == len({attempt.reference for attempt in ATTEMPTS})


def test_most_are_refused() -> None:
    """`done` is for effects that stay inside; most attempts must be refused."""
    refused = [attempt for attempt in ATTEMPTS if attempt.outcomes and DONE not in attempt.outcomes]
    assert len(refused) >= 120
