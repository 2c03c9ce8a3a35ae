"""A failure as data: its place, and the origin of its values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.harness.laboratory import Laboratory

from cenote.harness.questions.diagnosis import MAX_FOLLOWED, diagnose
from cenote_worker.execution.results import ErrorInfo, Span
from cenote_worker.execution.trace import ABSENT, StepTrace, Version, name
from cenote_worker.history.step import StepRecord


def failing(*codes: str, span: Span | None = None) -> list[StepRecord]:
    laboratory = Laboratory(by_name=True)
    for code in codes:
        laboratory.execute(None, code)
    *others, last = laboratory.line()
    return [*others, replace(last, error=replace(last.error, span=span))] if last.error else [*others, last]


def test_values_are_followed_to_the_statements_that_made_them() -> None:
    """Nearest first; a function leads to the names that it reads."""
    codes = ("n = 3\nm = 4", "limit = [n]", "def at(i):\n    return limit[i]", "x = 1\ny = at(2)")
    span = Span(line=2, column=4, end_line=2, end_column=9)
    found = diagnose(failing(*codes, span=span), 4)
    assert found is not None
    assert ("IndexError", "at(2)", True) == (found.error.type, found.source, found.complete)
    made = [(origin.name, origin.step, origin.code) for origin in found.origins]
    assert ("at", 3, "def at(i):\n    return limit[i]") == made[0]
    assert ("limit", 2, "limit = [n]") in made
    assert ("n", 1, "n = 3") in made
    assert "m" not in {name for name, _, _ in made}


def test_a_name_that_no_step_binds_is_missing() -> None:
    """A deleted name is, too, and the step that deleted it is named."""
    found = diagnose(
        failing("a = 1", "del a", "b = a + c", span=Span(line=1, column=4, end_line=1, end_column=9)), 3
    )
    assert found is not None
    assert [("a", 2, True), ("c", 0, True)] == [
        (origin.name, origin.step, origin.missing) for origin in found.origins[:2]
    ]


@pytest.mark.parametrize(("code", "statement"), [("n = 1; a.append('x')", "a.append('x')"), ("more()", "")])
def test_a_value_changed_in_place_leads_to_the_statement_that_may_have(code: str, statement: str) -> None:
    """The step that changed it is the relevant one, where its text says nothing."""
    first = "a = [1]\ndef more(): a.append('x')"
    found = diagnose(failing(first, code, "b = a[0] + a[1]"), 3)
    assert found is not None
    assert ("a", 2, statement) == (found.origins[0].name, found.origins[0].step, found.origins[0].code)


def test_only_what_a_user_could_have_bound_before_is_missing() -> None:
    """No builtin, and no name that the step binds itself."""
    span = Span(line=3, column=15, end_line=3, end_column=25)
    found = diagnose(
        failing("rows = ['x']", "out = []\nfor r in rows:\n    out.append(len(r) + r)", span=span), 2
    )
    assert found is not None
    assert ("len(r) + r", [("rows", 1)]) == (found.source, [(each.name, each.step) for each in found.origins])


@pytest.mark.parametrize(("error", "missing"), [("TypeError", []), ("NameError", ["out"])])
def test_what_a_step_was_to_bind_is_not_where_its_failure_comes_from(error: str, missing: list[str]) -> None:
    """Its trace lists the name as read and absent. Only after a NameError may that be the cause."""
    trace = StepTrace(reads={name("go"): "1", name("out"): ABSENT}, writes={})
    failed = StepRecord(
        number=1,
        code="out = go()",
        trace=trace,
        status="failed",
        error=ErrorInfo(type=error, message="", span=Span(line=1, column=6, end_line=1, end_column=10)),
    )
    found = diagnose([failed], 1)
    assert found is not None
    assert missing == [origin.name for origin in found.origins if origin.missing]


def test_a_step_that_did_not_fail_has_no_diagnosis() -> None:
    """Nor has one of another line."""
    assert diagnose(failing("a = 1"), 1) is None
    assert diagnose(failing("a = 1"), 7) is None


def test_what_a_hostile_step_says_it_has_read_is_followed_up_to_a_bound() -> None:
    """Its jail reports the reads: thousands of names, each made by a step that has read as many."""
    names = [name(f"a{index}") for index in range(300)]
    line = [
        StepRecord(
            number=number,
            parent=number - 1,
            code="a0 = near",
            trace=StepTrace(
                reads=dict.fromkeys(names, Version("1")), writes=dict.fromkeys(names, Version(f"v{number}"))
            ),
        )
        for number in range(1, 21)
    ]
    error = ErrorInfo(
        type="ValueError", message="", traceback="", span=Span(line=1, column=5, end_line=1, end_column=7)
    )
    failed = replace(line[-1], number=21, parent=20, status="failed", code="a0 = a7", error=error)
    found = diagnose([*line, failed], 21)
    assert found is not None
    assert ("a7", 20) == (found.origins[0].name, found.origins[0].step)
    assert len(found.origins) <= MAX_FOLLOWED
