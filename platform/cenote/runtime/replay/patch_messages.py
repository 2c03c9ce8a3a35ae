"""Patches on their way between a runtime and its client: patched lines, and why nothing was patched or built.

A line names its steps by number, with the code of those that are different. One table has the refusals of both
directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cenote.harness.artifacts.declaration import UnbuildableError
from cenote.harness.patching.errors import (
    NotPutBackError,
    NoWayError,
    StalePlanError,
    StateNotKeptError,
    StepNotRepeatedError,
)
from cenote.harness.patching.patched_history import LineStep
from cenote_security.errors import CenoteError, MalformedValueError, UsageError
from cenote_worker.execution.results import PatchedStep, PatchRefusal
from cenote_worker.history.history import History
from cenote_worker.history.tree import StepTree


def told_step(step: LineStep) -> PatchedStep:
    return PatchedStep(origin=step.number, change=step.change, code=step.code if step.change else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenLine:
    """The line is this one: a change of any line that has the steps that it names, or of which the tree has them.

    What was taken out of the line is brought back by its step.
    """

    steps: tuple[PatchedStep, ...]
    tree: StepTree

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        known = {step.number: step for step in line}
        return tuple(self._made(step, known.get(step.origin) or self._former(step)) for step in self.steps)

    def _former(self, step: PatchedStep) -> LineStep | None:
        """Of a step that is brought back."""
        if not step.origin:
            return None
        if step.origin not in self.tree or not step.change:
            raise UsageError(f"the line has no step {step.origin}")
        return LineStep(code="", origin=self.tree.get(step.origin))

    def _made(self, step: PatchedStep, stands_for: LineStep | None) -> LineStep:
        if not step.change:
            if stands_for is None:
                raise UsageError("a new step has code, and a word about it")
            return stands_for
        origin = stands_for.origin if stands_for is not None else None
        return LineStep(code=step.code, origin=origin, change=step.change)


@dataclass(frozen=True, slots=True)
class _Row:
    """error: of which class. made: of its facts again, in a history that has the steps that they name."""

    error: type[CenoteError]
    made: Callable[[History, object], CenoteError] | Callable[[History, object, object], CenoteError]


def _stale(_history: History, planned: object, head: object) -> CenoteError:
    return StalePlanError(_number(planned), _number(head))


def _unkept(_history: History, reason: object) -> CenoteError:
    return StateNotKeptError(str(reason))


def _no_way(_history: History, reason: object) -> CenoteError:
    return NoWayError(str(reason))


def _not_put_back(_history: History, head: object, step: object) -> CenoteError:
    return NotPutBackError(_number(head), None if step is None else _number(step))


def _not_repeated(history: History, number: object) -> CenoteError:
    return StepNotRepeatedError(history.tree.get(_number(number)))


def _unbuildable(_history: History, name: object, reason: object) -> CenoteError:
    return UnbuildableError(str(name), str(reason))


def _malformed(_history: History, reason: object) -> CenoteError:
    return MalformedValueError(str(reason))


_ROWS: Final[Mapping[str, _Row]] = {
    "stale": _Row(StalePlanError, _stale),
    "unkept": _Row(StateNotKeptError, _unkept),
    "no way": _Row(NoWayError, _no_way),
    "not put back": _Row(NotPutBackError, _not_put_back),
    "not repeated": _Row(StepNotRepeatedError, _not_repeated),
    "unbuildable": _Row(UnbuildableError, _unbuildable),
    "malformed": _Row(MalformedValueError, _malformed),
}

REFUSALS: Final = tuple(row.error for row in _ROWS.values())


def refusal_of(error: CenoteError) -> PatchRefusal:
    """Of one of REFUSALS."""
    kind = next(kind for kind, row in _ROWS.items() if isinstance(error, row.error))
    return PatchRefusal(kind=kind, facts=error.args, message=str(error))


def error_of(refusal: PatchRefusal | None, history: History) -> CenoteError:
    """The error again; one that this version does not know, or whose step has no record, keeps its text."""
    if refusal is None:
        return CenoteError("the platform did not apply the patch, and did not say why")
    row = _ROWS.get(refusal.kind)
    if row is not None:
        try:
            return row.made(history, *refusal.facts)
        except (TypeError, ValueError, KeyError):
            pass
    return UsageError(refusal.message)


def _number(fact: object) -> int:
    if not isinstance(fact, int):
        raise TypeError(fact)
    return fact
