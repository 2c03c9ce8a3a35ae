"""Whatever reads and writes a jail reports: queries return an answer or raise a Cenote error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.harness import ExecutionState
from cenote.harness.artifacts.arrangement import arrangement
from cenote.harness.artifacts.declaration import declared
from cenote.harness.artifacts.staleness import Survey
from cenote.harness.export import exported
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.forecast import make_plan
from cenote.harness.questions.diagnosis import diagnose
from cenote.harness.record.history_index import HistoryIndex
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import CenoteError
from cenote_worker.execution import messages
from cenote_worker.execution.results import ErrorInfo, Span
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord

KEYS = {
    "name": ("a", "b", "f", "a.b", ""),
    "file": ("x", "d/x.py", ".", "", "/etc/x", "../x"),
    "hidden": ("random", "?"),
    "module": ("*", "x", ""),
}
LOCATIONS = st.sampled_from([f"{kind}:{key}" for kind, keys in KEYS.items() for key in keys] + ["*"])
VERSIONS = st.sampled_from(("", "1", "2", "?", "?3", "?files"))
CODES = st.sampled_from(
    (
        "a = b",
        "def f():\n    return a\nb = f()",
        "b = a\na = b; del b",
        "a = (",
        "%%writefile x\nhello",
        "%%timeit\n%%timeit\na",
        "import a.b, f",
        "from a import *\nb = 1",
        f"a = {'-' * 7000}1\nb = 1",
        f"a = 1\nb = {'a + ' * 990}a",
        "if a:\n a = 1\n" + "elif a:\n b = 2\n" * 300,
        "\x00",
        "\ud800 = 1",
        "a\r\nb",
        "\ufeffa = 1",
    )
)


@st.composite
def traces(draw: st.DrawFn) -> jail_pb2.StepTrace:
    """As in a frame."""
    said = jail_pb2.StepTrace(
        mutated=draw(st.lists(LOCATIONS, max_size=3)),
        modules=draw(st.lists(st.sampled_from(("x", "", "a.b")), max_size=2)),
        opaque=draw(st.lists(st.just("why"), max_size=1)),
        unrepeatable=draw(st.lists(st.just("why"), max_size=1)),
    )
    for part in (said.reads, said.writes, said.unportable):
        for location in draw(st.lists(LOCATIONS, max_size=4)):
            part.add(location=location, version=draw(VERSIONS))
    for group in draw(st.lists(st.lists(LOCATIONS, max_size=4), max_size=3)):
        said.groups.add(locations=group)
    for location in draw(st.lists(LOCATIONS, max_size=2)):
        said.kinds.add(location=location, type="int", shape=[0, 2**40], has_shape=draw(st.booleans()))
    return said


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History()
    history.begins_with(("a",))
    span = Span(line=draw(st.integers(-1, 3)), column=-5, end_line=2**31, end_column=2**40)
    for number in range(1, draw(st.integers(2, 7))):
        status = draw(st.sampled_from(("ok", "ok", "ok", "failed", "rolled_back", "refused", "lost")))
        error = None if status == "ok" else ErrorInfo(type="NameError", message="", traceback="", span=span)
        history.ended(
            StepRecord(
                number=number,
                parent=history.tree.head,
                code=draw(CODES),
                status=status,
                error=error,
                trace=messages.read_trace(draw(traces())) if draw(st.integers(0, 9)) else None,
            )
        )
    units = (
        ArtifactDeclared(name="x", kind="dataset"),
        ArtifactDeclared(name="d/x.py", kind="module", depends_on=("x",)),
    )
    history.declared(units)
    return history


def _plans(line: Sequence[StepRecord]) -> Iterator[Callable[[], object]]:
    patches = [Patch.replace_step(each.number, "a = 7") for each in line]
    patches.append(Patch.insert_step(0, "b = 3"))
    patches.append(Patch.replace_function("f", "def f(): return 2"))
    patches.append(Patch.replace_artifact("d/x.py", "y = 1"))
    for patch, kept in product(patches, ((), (0,))):
        yield partial(make_plan, patch, line, kept)


def _questions(history: History) -> Iterator[Callable[[], object]]:
    state, head = ExecutionState(lambda: history), history.tree.head
    line = history.tree.line(head)
    yield from _plans(line)
    asks = (state.blame, state.slice, state.dependents)
    yield from (partial(ask, symbol) for ask, symbol in product(asks, ("a", "b", "file:x", "zzz")))
    yield from (
        partial(exported, HistoryIndex(history), suffix) for suffix in (".ipynb", ".json", ".mmd", ".dot")
    )
    yield from (partial(diagnose, [*line, each], each.number) for each in history.tree)
    yield lambda: arrangement(Survey(line, declared(history.units)))
    yield lambda: state.artifacts
    yield partial(state.diff, 0, head)
    yield partial(state.at, head)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(histories())
def test_no_record_ends_a_question_otherwise(history: History) -> None:
    for ask in _questions(history):
        with suppress(CenoteError):
            ask()
