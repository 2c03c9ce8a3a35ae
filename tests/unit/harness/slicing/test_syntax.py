"""Code that is hard to read on purpose costs its reader a bounded effort, and every query still returns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cenote.harness.patching.definitions import definition_span
from cenote.harness.questions.diagnosis import diagnose
from cenote.harness.record.cell_syntax import MAX_CODE, UnreadCode, parse, parsed
from cenote.harness.record.code_names import bound_names, mentioned_names
from cenote.harness.record.last_writer import last_writer
from cenote.harness.slicing.statement_choice import LineNames
from cenote.harness.slicing.statements import ReadCells, parts_of_packages, statements_of
from cenote_worker.execution.results import ErrorInfo
from cenote_worker.execution.trace import StepTrace, Version, name
from cenote_worker.history.step import StepRecord

NESTED: dict[str, Callable[[int], str]] = {
    "signs": lambda depth: f"x = {'-' * depth}1\ny = x",
    "sums": lambda depth: f"x = 1\ny = {'x + ' * depth}x",
    "calls": lambda depth: f"x = 1\nx{'()' * depth}",
    "attributes": lambda depth: f"x = 1\nx{'.x' * depth} = 1",
    "branches": lambda depth: "if x:\n x = 1\n" + "elif x:\n x = 2\n" * depth,
    "choices": lambda depth: f"y = 1\nx = {'1 if y else ' * depth}1",
    "lambdas": lambda depth: f"y = 1\nx = {'lambda: ' * depth}1",
    "parentheses": lambda depth: f"y = 1\nx = {'(' * depth}{',)' * depth}",
    "blocks": lambda depth: "\n".join(f"{' ' * one}if x:" for one in range(depth)) + f"\n{' ' * depth}x = 1",
    "patterns": lambda depth: f"match x:\n case {'[' * depth}x{']' * depth}: x = 1",
}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@example(shape="lambdas", depth=1500)
@given(
    shape=st.sampled_from(sorted(NESTED)), depth=st.sampled_from((20, 90, 199, 330, 900, 1500, 2900, 7000))
)
def test_no_depth_ends_a_question(shape: str, depth: int) -> None:
    """Whether the parser or a tree walk gives up: a name is then not found."""
    code = NESTED[shape](depth)
    writer = _record(1, code, writes=("x",))
    failed = _record(2, "x", error=ErrorInfo(type="E", message="", traceback=""))
    assert parsed(code) is None or "x" in mentioned_names(code)
    assert definition_span(code, "f") is None
    assert statements_of(code) is None or len(statements_of(code) or ()) >= 2
    assert last_writer(code, "nobody") == (None, "")
    assert diagnose([writer, failed], 2) is not None
    LineNames(ReadCells()).grow([writer])


def test_code_is_read_up_to_a_bound() -> None:
    """Parsing takes memory a thousand times the size of the code, and blocks the other threads of the process."""
    longest = "x = 1\n" + "#" * (MAX_CODE - 6)
    assert parsed(longest) is not None
    with pytest.raises(UnreadCode):
        parse(longest + "#")
    assert (statements_of(longest + "\nx\n"), last_writer(longest + "#", "x")) == (None, (None, ""))


@pytest.mark.parametrize("unread", ["#" * MAX_CODE, f"y = {'1+' * 12_000}1"])
def test_functions_in_code_that_is_not_read_may_speak_of_anything(unread: str) -> None:
    """The code has run, so a slice must not assume that it defines no functions."""
    line = LineNames(ReadCells())
    line.grow([_record(1, f"def f(): return hidden\n{unread}", writes=("f",))])
    assert not line.readable


def test_functions_in_what_is_no_python_speak_of_nothing() -> None:
    line = LineNames(ReadCells())
    line.grow([_record(1, "def f() return", writes=())])
    assert line.readable


def test_imports_are_looked_for_in_one_pass() -> None:
    """A megabyte of `import` took minutes, with a regular expression that restarted at each."""
    assert parts_of_packages("import " * 150_000) == set()
    assert parts_of_packages("import a, b.c.d as e\nfrom f import g") == {"b", "c"}


def _record(
    number: int, code: str, *, writes: tuple[str, ...] = (), error: ErrorInfo | None = None
) -> StepRecord:
    trace = StepTrace(writes={name(one): Version("1") for one in writes}, reads={name("x"): Version("1")})
    return StepRecord(number=number, parent=number - 1, code=code, trace=trace, error=error)


def test_what_functions_bind_for_themselves_is_bound_nowhere_else() -> None:
    """Names declared global are bound outside, and so are named expressions in comprehensions."""
    code = (
        "def f(p, d=(w := 1)):\n    global g\n    g = own = [(inner := q) for q in p]\n"
        "class C(B):\n    body = 1\n    def m(self):\n        mine = 2\n"
        "x = [(out := c) for c in d]\nh = lambda: (there := 1)\nfor i in x: pass\ndel y"
    )
    assert {"f", "w", "g", "C", "x", "out", "h", "i", "y"} == bound_names(code)
