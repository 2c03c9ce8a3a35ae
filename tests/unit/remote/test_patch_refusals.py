"""A client gets the same error for a refused patch as a caller next to the runtime."""

from __future__ import annotations

import pytest

from cenote.harness.artifacts import UnbuildableError
from cenote.harness.patching.errors import (
    NotPutBackError,
    NoWayError,
    StalePlanError,
    StateNotKeptError,
    StepNotRepeatedError,
)
from cenote.runtime.replay.patch_messages import REFUSALS, error_of, refusal_of
from cenote_security.errors import CenoteError, MalformedValueError, UsageError
from cenote_worker.execution.results import PatchRefusal
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord

UPLOAD = StepRecord(number=1, kind="upload")

ERRORS = [
    StalePlanError(3, 5),
    StateNotKeptError("a thread is running"),
    NoWayError("the start is gone"),
    NotPutBackError(3, 2),
    NotPutBackError(3, None),
    StepNotRepeatedError(UPLOAD),
    UnbuildableError("shop.py", "step 4 has removed it"),
    MalformedValueError("test results that are none"),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_an_error_comes_back_as_it_was(error: CenoteError) -> None:
    """With its class, its fields, and its text."""
    history = History()
    history.ended(UPLOAD)
    back = error_of(refusal_of(error), history)
    assert (type(error), error.args, str(error)) == (type(back), back.args, str(back))
    assert {type(one) for one in ERRORS} == set(REFUSALS)


@pytest.mark.parametrize(
    "refusal",
    [
        PatchRefusal(kind="of tomorrow", facts=(), message="why"),
        PatchRefusal(kind="stale", facts=("three", 5), message="why"),
        PatchRefusal(kind="stale", facts=(3,), message="why"),
        PatchRefusal(kind="not repeated", facts=(7,), message="why"),
    ],
)
def test_what_is_not_understood_keeps_its_text(refusal: PatchRefusal) -> None:
    """A later version's kind, other fields, a step whose record is lost."""
    back = error_of(refusal, History())
    assert (UsageError, "why") == (type(back), str(back))
