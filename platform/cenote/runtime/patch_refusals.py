"""Why nothing was patched or built, on its way from a runtime to its client: one table of both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cenote.harness.artifacts.errors import UnbuildableError
from cenote.harness.patch_errors import (
    NotPutBackError,
    NoWayError,
    StalePlanError,
    StateNotKeptError,
    StepNotRepeatedError,
)
from cenote_security.errors import CenoteError, MalformedValueError, UsageError
from cenote_worker.history.history import History
from cenote_worker.results import PatchRefusal


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
