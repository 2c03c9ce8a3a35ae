"""A state made from a former one and some bindings is the same in every respect that a program can observe.

Copies are made here by running the program again up to where the process would have been forked.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy  # noqa: F401  here, since programs import it: the first import in a process is not like the second
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.soundness.tracking.test_soundness import NAMES, relaxed, statement
from tests.support.tracking.kept_states import Line, state

from cenote_worker.execution.trace import StepTrace

pytestmark = pytest.mark.usefixtures("alone")

PLAIN = (
    "{x} = {n}",
    "{x} = {n} * 1000",
    "{x} = str({n}) * 3",
    "{x} = -0.0 * {n}",
    "{x} = {y}",
    "{x}, {y} = {y}, {x}",
    "{x} = {y} is {z}",
    "{x} = None if {y} is {z} else b'{n}'",
    "del {x}",
    "del {x}\n{x} = {n}",
    "{x} += {y}",
    "{x}",
    "{n} + 1000",
    "print({x}, len({y}))",
    "_ is {x}",
    "{x} = _",
    "for {x} in range({n}):\n    {y} = {x} + 500",
    "{x} = f'{{{y}}} and {n}'",
    "if {x} == {y}:\n    {z} = 2000.5",
    "{x} = {y}[0]",
    "{x} = np.arange({n} + 0.0)",
    "print({x}.sum())",
    "{x} = {{{n}, 'k', None}}",
    "{x} = set(range(0, {n} * 8, 8))",
    "{x}.add({n} * 8)",
    "{x} |= {{'k' * {n}, {n}}}",
    "{x}.pop()",
    "{x} = list({y})",
    "{x} = float({y}[0]) if {y} is not {z} else 1e300",
)

plain = st.builds(
    lambda text, x, y, z, n: text.format(x=x, y=y, z=z, n=n),
    st.sampled_from(PLAIN), *(st.sampled_from(NAMES) for _ in "xyz"), st.integers(0, 3),
)  # fmt: skip
cell = st.lists(plain, min_size=1, max_size=2).map("\n".join) | statement
program = st.lists(cell, min_size=3, max_size=8)


OTHERS = "other threads or tasks were at work"


def known(trace: StepTrace) -> object:
    """The touched locations, without random versions.

    Bindings are detected by the addresses of objects, which may be reused: a name bound to an equal value may count
    as read or as written, with its group or without.
    """
    touched = {**trace.reads, **trace.writes}
    versions = {each: version if version[:1] != "?" else "?" for each, version in touched.items()}
    return versions, trace.opaque, trace.unrepeatable


@pytest.mark.slow
@settings(relaxed, max_examples=100)
@given(program)
@example(["a = [1]\nb = a", "del b", "a.append(2)"])
@example(
    [
        "def f(): pass\na = [1]\nb = a\nc = {}",
        "a.append(3)",
        "c['k'] = 1000.5",
        "b = c",
        "a = [a]",
        "b['k'] = 1",
    ]
)
def test_going_on_from_any_state_is_as_if_one_had_never_left(in_process: Callable, cells: list[str]) -> None:
    """The namespace is equal, and every later cell has the same effects and the same trace."""
    line, states = Line(in_process), list[object]()
    for source in cells:
        line.run(source)
        states.append(state(line.steps))
    for number, kept in enumerate(line.kept, 1):
        if kept.bindings is None:
            continue
        steps = line.back_at(number)
        assert states[number - 1] == state(steps)
        for later, source in enumerate(cells[number:], number):
            then, now = line.traces[later], steps.run(source)
            if OTHERS in then.opaque or OTHERS in now.opaque:
                return  # a thread of another test ran in this process
            assert known(then) == known(now)
            assert states[later] == state(steps)


def test_what_follows_each_other_is_told_of_one_copy(in_process: Callable) -> None:
    """All bindings since the copy, each time."""
    line = Line(in_process)
    for source in ("a = {(1, 2)}", "b = [5000]", "a", "del b", "a.add(b'x')", "c = 1.5"):
        line.run(source)
    assert [1, 1, 1, 1, 5, 5] == [kept.cells for kept in line.kept], line.unclear()
    assert [True, False, False, False, True, False] == [kept.bindings is None for kept in line.kept]


def test_containers_that_the_copy_has_are_told_with_what_is_in_them_now(in_process: Callable) -> None:
    """As long as all of it is plain, and has no other owner."""
    line = Line(in_process)
    for source in ("a = [{1}]\nb, c = [5000], {}", "b.append(2)", "c['k'] = 'two words'", "b", "b.append(c)"):
        line.run(source)
    assert [1, 1, 1, 1, 5] == [kept.cells for kept in line.kept], line.unclear()
