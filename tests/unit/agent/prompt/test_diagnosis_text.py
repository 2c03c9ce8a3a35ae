"""What a model is shown about the origin of a failing step's values."""

from __future__ import annotations

from cenote.agent.prompt.cell_reports import diagnosis_text
from cenote.harness.questions.diagnosis import Diagnosis, Origin
from cenote_worker.execution.results import ErrorInfo


def told(message: str, *origins: Origin, source: str = "f(a)") -> str:
    error = ErrorInfo(type="NameError", message=message)
    return diagnosis_text(Diagnosis(step=4, error=error, source=source, origins=origins, complete=True))


def test_each_value_has_its_step_and_statement() -> None:
    """One line each, the first line of longer code, the author where there are several."""
    origins = (
        Origin(name="f", step=1, code="def f(x):\n    return x"),
        Origin(name="a", step=2, author="ana"),
        Origin(name="b", step=3, missing=True),
    )
    expected = """\
What `f(a)` is made from:
f: step 1, def f(x): ...
a: step 2 (ana), changed in place
b: removed by step 3"""
    assert expected == told("", *origins)


def test_of_what_no_step_makes_only_what_is_missed_is_told() -> None:
    """`print` is not made by a step either, and the name that the failing step was to make is not reported."""
    origins = [Origin(name=name, step=0, missing=True) for name in ("dff", "print", "total")]
    assert "What step 4 is made from:\ndff: no step makes it" == told(
        "name 'dff' is not defined", *origins, source=""
    )
    assert "" == told("division by zero", *origins)


def test_far_origins_are_left_out() -> None:
    """The five nearest explain most, in few tokens."""
    origins = [Origin(name=f"x{number}", step=number, code="x = " + "1" * 200) for number in range(1, 9)]
    lines = told("", *origins).splitlines()
    assert (6, True) == (len(lines), lines[-1].startswith("x5: step 5, x = 1"))
    assert all(len(line) < 130 for line in lines)
