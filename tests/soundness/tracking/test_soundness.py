"""Random programs: every change is traced, and unread values do not matter."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cenote_worker.execution.trace import ANYTHING, Location, StepTrace, key_of, kind_of, name

NAMES = ("a", "b", "c", "d")
STATEMENTS = (
    "{x} = [1, {n}]",
    "{x} = {{'k': {n}}}",
    "{x} = {n}",
    "{x} = {y}",
    "{x} = [{y}, {y}]",
    "{x} = ({y}, {n})",
    "{x} = {{'k': {y}}}",
    "{x} = list({y})",
    "{x}.append({n})",
    "{x}.append({y})",
    "{x}[0] = {n}",
    "{x}['k'] = {y}",
    "{x}[0].append({n})",
    "{x}['k'].append({n})",
    "{x} += [{n}]",
    "{x} = {x}[0]",
    "{x} = {y}['k']",
    "del {x}",
    "del {x}[0]",
    "for {x} in {y}:\n    pass",
    "if {y}:\n    {x} = {n}",
    "try:\n    {x}.append({y}[0])\nexcept Exception:\n    {x} = None",
    "def f():\n    return {x}",
    "def f():\n    {x}.append({n})\n    return {y}",
    "def f(v={x}):\n    v.append({n})\n    return v",
    "def f():\n    global {x}\n    {x} = {n}",
    "def make():\n    held = {x}\n    def inner():\n        held.append({n})\n        return held\n    return inner",
    "f = make()",
    "def g():\n    yield from {x}\n    {y}.append({n})\ng = g()",
    "{x} = f()",
    "f()",
    "f = lambda: {x}",
    "{x} = next(g)",
    "for _i in g:\n    pass",
    "class C:\n    items = {x}\n    def put(self):\n        self.items.append({n})\n        return {y}",
    "o = C()",
    "{x} = o.put()",
    "o.v = {x}",
    "C.items = {x}",
    "{x} = o.v",
    "import numpy as np\n{x} = np.arange(4.0)",
    "{x} = {y}[1:]",
    "{x}[:] = {n}",
    "{x} = [each for each in {y}]",
    "{x} = sorted({y}, key=lambda each: (str(each), {n}))",
    "{x} = iter({y})",
    "import functools\n{x} = functools.partial({y}.append, {n})",
    "{x}()",
)

statement = st.builds(
    lambda text, x, y, n: text.format(x=x, y=y, n=n),
    st.sampled_from(STATEMENTS), st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 3),
)  # fmt: skip
cell = st.lists(statement, min_size=1, max_size=3).map("\n".join)
program = st.lists(cell, min_size=2, max_size=6)
relaxed = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


def seen(value: object, met: dict[int, int]) -> object:
    """What a program can observe of a value, found in another way than the tracker does."""
    if value is None or isinstance(value, (int, float, str, bool)):
        return (type(value).__name__, repr(value))
    if id(value) in met:
        return ("again", met[id(value)])
    met[id(value)] = len(met)
    kind = type(value).__name__
    if isinstance(value, (list, tuple)):
        return (kind, [seen(each, met) for each in value])
    if isinstance(value, dict):
        return (kind, [(seen(key, met), seen(each, met)) for key, each in value.items()])
    if kind == "ndarray":
        return (kind, _items(value))
    if isinstance(value, types.FunctionType):
        cells = [seen(each.cell_contents, met) for each in value.__closure__ or ()]
        return (kind, value.__code__.co_code, value.__code__.co_names, seen(value.__defaults__, met), cells)
    if isinstance(value, type):
        return (kind, [(key, seen(each, met)) for key, each in vars(value).items() if key[:2] != "__"])
    if isinstance(value, types.GeneratorType):
        held = dict(value.gi_frame.f_locals) if value.gi_frame else None
        return (kind, value.gi_frame and value.gi_frame.f_lasti, held and seen(held, met))
    if kind == "partial":
        return (kind, seen(value.func.__self__, met))  # type: ignore[attr-defined]
    return (kind, seen(vars(value), met) if hasattr(value, "__dict__") else str(type(value)))


def _items(array: Any) -> object:
    """Compared by bits: a NaN is unequal to itself."""
    return array.tolist() if array.dtype.hasobject else (array.dtype.str, array.shape, array.tobytes())


def values(namespace: dict[str, object]) -> dict[str, object]:
    user = {key: value for key, value in namespace.items() if key[:2] != "__"}
    return {key: seen(value, {}) for key, value in user.items() if not isinstance(value, types.ModuleType)}


@pytest.mark.slow
@relaxed
@given(program)
def test_every_change_is_written(in_process: Callable, cells: list[str]) -> None:
    """A name whose value differs after a step is among the step's writes."""
    steps = in_process()
    before = values(steps.namespace)
    for source in cells:
        trace = steps.run(source)
        after = values(steps.namespace)
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert ANYTHING in trace.writes or set() == {name(key) for key in changed} - trace.writes.keys()
        before = after


@pytest.mark.slow
@relaxed
@given(program)
def test_what_was_not_read_does_not_matter(in_process: Callable, cells: list[str]) -> None:
    """A step whose trace lists a name neither as read nor as changed in place gives the same result when it is bound
    to something else.
    """
    *earlier, last = cells
    steps = in_process()
    for source in earlier:
        steps.run(source)
    names = [key for key in steps.namespace if key[:1] != "_" and key not in ("np", "functools")]
    trace = steps.run(last)
    expected, failure = values(steps.namespace), steps.failure
    if ANYTHING in trace.reads:
        return
    for changed in names:
        if name(changed) in trace.reads or name(changed) in trace.mutated:
            continue
        other = in_process()
        for source in earlier:
            other.run(source)
        other.namespace[changed] = ["something else"]
        other.run(last)
        found = values(other.namespace)
        if name(changed) not in trace.writes:
            found[changed] = expected[changed]
        assert (failure, expected) == (other.failure, found), f"{changed} was not read"


def written(trace: StepTrace) -> set[Location]:
    """Without files, which these programs do not use: files of this process's other threads are traced, too."""
    return {each for each in trace.writes if kind_of(each) != "file"}


@pytest.mark.slow
@relaxed
@given(program)
def test_equal_states_have_equal_versions(in_process: Callable, cells: list[str]) -> None:
    """The same program in two namespaces gives the same versions, unless a value cannot be inspected."""
    one, other = in_process(), in_process()
    first = [one.run(source) for source in cells]
    second = [other.run(source) for source in cells]
    for mine, theirs in zip(first, second, strict=True):
        assert written(mine) == written(theirs)
        known = {
            each: version
            for each, version in mine.writes.items()
            if version[:1] != "?" and kind_of(each) == "name" and key_of(each) != "np"
        }
        assert known == {each: theirs.writes[each] for each in known}
