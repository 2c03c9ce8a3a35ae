"""Checks a share of applied patches against a full run, and raises an alarm on any difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cenote.harness.apply_ground import EffectNotRepeatedError, Ground
from cenote.harness.equality import differences, same_text
from cenote.harness.plan_line import LineStep
from cenote_security.errors import CenoteError
from cenote_worker.history.step import StepRecord


class AuditedGround(Ground, Protocol):
    """A ground that can show what it has."""

    def values(self) -> Mapping[str, object]:
        """All names that can be had, by value; a name whose value cannot be had is there with its description."""

    def files(self) -> Mapping[str, bytes]:
        """Paths in the working directory, with a digest of the content of each."""


class UnsoundError(CenoteError):
    """A patched state is not that of a full run. It is the alarm of the auditor; the patch stays applied.

    names, files: which differ. steps: numbers of those that show something else.
    """

    def __init__(self, names: tuple[str, ...], files: tuple[str, ...], steps: tuple[int, ...]) -> None:
        super().__init__(names, files, steps)
        self.names = names
        self.files = files
        self.steps = steps

    def __str__(self) -> str:
        found = [
            f"{what} {', '.join(map(str, which))}"
            for what, which in (
                ("names", self.names),
                ("files", self.files),
                ("outputs of steps", self.steps),
            )
            if which
        ]
        return (
            f"a full run of the patched history gives something else: {'; '.join(found)}. Roll back, and report the "
            f"history: this is a defect of Cenote, or code that gives something else each time"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Auditor:
    """share: of patches to check, from 0 to 1. fresh: a new ground at the start of the same history.

    chance: a number from 0 to below 1, another one each time.
    """

    share: float
    fresh: Callable[[], AuditedGround]
    chance: Callable[[], float]

    def audit(self, line: Sequence[LineStep], ground: AuditedGround, records: Sequence[StepRecord]) -> bool:
        """Whether it was checked; a full run that would repeat an effect outside cannot be. Raises UnsoundError.

        line: the patched history. records: of the same steps, as the applied patch left them.
        """
        if self.chance() >= self.share:
            return False
        fresh = self.fresh()
        try:
            full = [fresh.execute(step.origin, step.code, tentative=True) for step in line]
        except EffectNotRepeatedError:
            return False
        self._compare(ground, fresh, records, full)
        return True

    def _compare(
        self,
        ground: AuditedGround,
        fresh: AuditedGround,
        records: Sequence[StepRecord],
        full: Sequence[StepRecord],
    ) -> None:
        names = differences(ground.values(), fresh.values())
        files = differences(ground.files(), fresh.files())
        steps = tuple(
            one.number for one, other in zip(records, full, strict=True) if not _same_outputs(one, other)
        )
        if names or files or steps:
            raise UnsoundError(names, files, steps)


def _same_outputs(one: StepRecord, other: StepRecord) -> bool:
    return one.status == other.status and all(
        same_text(left or "", right or "")
        for left, right in ((one.stdout, other.stdout), (one.stderr, other.stderr), (one.value, other.value))
    )
