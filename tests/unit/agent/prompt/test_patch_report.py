"""What a model reads of a patch: steps by their first numbers, and the differences of their outputs."""

from __future__ import annotations

import pytest

from cenote.agent.prompt.patch_reports import FirstNumbers, report
from cenote.harness import ApplyResult
from cenote.harness.questions.diagnosis import Diagnosis, Origin
from cenote_worker.execution.results import ErrorInfo
from cenote_worker.history.step import StepRecord


def step(number: int, stdout: str = "", origin: int = 0) -> StepRecord:
    return StepRecord(number=number, code=f"step {origin or number}", stdout=stdout, origin=origin)


def told(before: list[StepRecord], after: list[StepRecord], *changed: str) -> str:
    numbers = FirstNumbers()
    numbers.learn(after)
    result = ApplyResult(status="applied", head=after[-1].number, records=tuple(after), changed=changed)
    return report(before, result, numbers).whole


def test_numbers_in_a_row_are_told_as_one() -> None:
    """By the first numbers; unchanged outputs are not shown."""
    before = [step(number, "x") for number in (1, 2, 3, 4, 6)]
    after = [step(number + 10, "x", number) for number in (1, 2, 3, 6)]
    assert "Patched; ran again: 1-3, 6.\nNothing else is different." == told(before, after)
    assert "Patched; ran again: 6.\nChanged: a.\n#6:\ny" == told(before, [step(16, "y", 6)], "a")
    assert "Patched; nothing had to run.\nChanged: a." == told(before, before, "a")


def test_of_many_changed_names_the_first_are_told() -> None:
    """A model knows from its own code what depends on what; one name is no longer than the words for it."""
    before, after = [step(1, "x")], [step(2, "x", 1)]
    assert "Changed: a, b, c, d, e, f, g, h and 2 more." == told(before, after, *"abcdefghij").split("\n")[1]
    assert "Changed: a, b, c, d, e, f, g, h, i." == told(before, after, *"abcdefghi").split("\n")[1]


@pytest.mark.parametrize(
    ("now", "shown"),
    [
        ("abcdefgX", "... 7 lines as before ...\nX"),
        ("Xbcdefgh", "X\n... 7 lines as before ..."),
        ("abcXefgh", "a\nb\nc\nX\n... 4 lines as before ..."),
        ("abcdX", "... 4 lines as before ...\nX"),
        ("X", "X"),
        ("", "(no output)"),
    ],
)
def test_of_long_outputs_the_lines_are_told_that_are_different(now: str, shown: str) -> None:
    """Four or more unchanged lines in a row become one; fewer are shown."""
    before = step(1, "\n".join("abcdefgh"))
    assert f"Patched; ran again: 1.\n#1:\n{shown}" == told([before], [step(2, "\n".join(now), 1)])


def test_first_numbers_hold_behind_any_number_of_patches() -> None:
    """Also in the origins of a failing step. A step that replaces no other keeps its own number."""
    numbers = FirstNumbers()
    for line in ([step(4, origin=1), step(5, origin=2)], [step(7, origin=4), step(8, origin=5)], [step(9)]):
        numbers.learn(line)
    assert [1, 2, 1, 2, 9, 10] == [numbers.first(number) for number in (4, 5, 7, 8, 9, 10)]
    error = ErrorInfo(type="NameError", message="")
    origins = (Origin(name="a", step=7), Origin(name="b", step=0))
    found = numbers.of(Diagnosis(step=8, error=error, source="f(a)", origins=origins, complete=True))
    assert (2, [1, 0]) == (found.step, [origin.step for origin in found.origins])
