"""`cenote doctor --attack`: tries to break out of jails on this machine, and says what held."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from cenote.cli.exit_status import ExitStatus
from cenote.terminal.screen import BOLD, GREEN, RED, Screen
from cenote_security.attacks.escape_attempt import DONE, EscapeAttempt, outcome_of
from cenote_security.attacks.witnesses import Witnesses
from cenote_security.errors import IsolationUnavailableError

LEVELS: tuple[Literal["strict", "landlock"], ...] = ("strict", "landlock")
_INSIDE = {DONE: "stayed inside", "": "not tried"}
_PATIENCE = 20.0
"""Seconds that one attempt may take. All are over in milliseconds unless they hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptVerdict:
    """What became of one attempt. breaches: what was seen from outside. outcome: what it says of itself.

    held: nothing was seen outside, and the attempt was refused as it should be.
    """

    level: str
    name: str
    reference: str
    outcome: str
    breaches: tuple[str, ...]
    held: bool


def handle(*, as_json: bool) -> int:
    screen = Screen()
    verdicts: list[AttemptVerdict] = []
    unavailable: dict[str, str] = {}
    for level in LEVELS:
        screen.progress(f"attacking jails of isolation {level}")
        try:
            verdicts += attack(level)
        except IsolationUnavailableError as error:
            unavailable[level] = str(error)
    if as_json:
        report = {"verdicts": [asdict(verdict) for verdict in verdicts], "unavailable": unavailable}
        screen.line(json.dumps(report, indent=2))
    else:
        describe(verdicts, unavailable, screen)
    all_held = all(verdict.held for verdict in verdicts)
    return ExitStatus.OK if verdicts and all_held else ExitStatus.FAILED


def attack(level: Literal["strict", "landlock", "none"]) -> Iterator[AttemptVerdict]:
    """Makes each attempt of the short set in one jail. Raises IsolationUnavailableError.

    What would hit this process aims at a bystander made for it: where a wall is missing, no harm is done.
    """
    from cenote.runtime import PythonRuntime
    from cenote_security.attacks.short_set_unsafe import SHORT
    from cenote_security.policy import Mount, SandboxPolicy

    with Witnesses() as witnesses:
        policy = SandboxPolicy(isolation=level, preload=(), mounts=[Mount(source=str(witnesses.shown))])
        with PythonRuntime(sandbox=policy, address="embedded") as runtime:
            for attempt in SHORT.attempts:
                facts = witnesses.facts() | {"client": witnesses.bystander}
                result = runtime.execute(attempt.cell(facts), timeout=_PATIENCE)
                said = f"{result.stdout}{result.stderr}{result.value}{result.error}"
                outcome = outcome_of(result.stdout) or (result.error.reason if result.error else "")
                yield _verdict(level, attempt, outcome, tuple(witnesses.breaches(said)))


def _verdict(level: str, attempt: EscapeAttempt, outcome: str, breaches: tuple[str, ...]) -> AttemptVerdict:
    return AttemptVerdict(
        level=level,
        name=attempt.name,
        reference=attempt.reference,
        outcome=outcome,
        breaches=breaches,
        held=not breaches and outcome in attempt.outcomes,
    )


def describe(verdicts: Sequence[AttemptVerdict], unavailable: Mapping[str, str], screen: Screen) -> None:
    """Level by level, a line for each attempt. unavailable: why a level is not there."""
    for level in LEVELS:
        if level in unavailable:
            screen.line(f"{level}: {unavailable[level]}", BOLD)
            continue
        of_level = [verdict for verdict in verdicts if verdict.level == level]
        held = sum(verdict.held for verdict in of_level)
        screen.line(f"{level}: {held} of {len(of_level)} held", BOLD, GREEN if held == len(of_level) else RED)
        for verdict in of_level:
            seen = "; ".join(verdict.breaches) or _INSIDE.get(verdict.outcome, verdict.outcome)
            screen.line(
                f"  {'held' if verdict.held else 'FAIL'}  {verdict.name:<32}  {seen:<14}  {verdict.reference}"
            )
