"""Queries about a traced history, and about an untraced one."""

from __future__ import annotations

import pytest
from tests.support.harness.lines import Line

from cenote.harness import ExecutionState, LiveVariable
from cenote_security.errors import UnknownEntryError, UnknownNameError
from cenote_worker.execution.results import ErrorInfo, Span, VariableInfo
from cenote_worker.execution.trace import StepTrace, ValueKind, Version, name
from cenote_worker.history.events import ArtifactDeclared


@pytest.fixture
def line() -> Line:
    """A small analysis: `raw` exists from the start; step 4 is independent."""
    line = Line("raw")
    line.run("def clean(d): ...", writes=["clean"], author="ana", cause="call-1")
    line.run("df = clean(raw)", reads=["clean", "raw"], writes=["df"], author="ana", cause="call-2")
    line.run("total = df.sum()", reads=["df"], writes=["total"], author="ben", cause="call-3", started=30.0)
    line.run("note = 'hello'", writes=["note"], author="ben", cause="call-4", started=40.0)
    line.run("report = str(total)", reads=["total"], writes=["report"], started=50.0)
    return line


def test_steps_are_the_cells_of_the_live_line(line: Line) -> None:
    """Changes without code and rolled back steps are in the history only."""
    line.run(kind="injection", names=("extra",), writes=["extra"])
    line.rollback(2)
    line.run("x = 1", writes=["x"])
    assert [1, 2, 7] == [step.number for step in line.state.steps]
    assert [1, 2, 3, 4, 5, 6, 7] == [step.number for step in line.state.history]
    assert [1, 2, 3] == [step.number for step in line.state.line(3)]
    assert 7 == line.state.head


def test_a_step_in_plain_words() -> None:
    """Names without their kinds, with files listed separately."""
    line = Line()
    trace = StepTrace(
        reads={"name:df": "", "file:in.csv": ""},  # type: ignore[dict-item]
        writes={"name:df": "1", "name:out": "2", "file:out.csv": "3"},  # type: ignore[dict-item]
        mutated=frozenset({"name:df"}),  # type: ignore[arg-type]
    )
    line.blind("...", trace=trace)
    step = line.state.step(1)
    assert (("df",), ("df", "out"), ("df",)) == (step.reads, step.writes, step.mutated)
    assert (("in.csv",), ("out.csv",)) == (step.files_read, step.files_written)
    assert () == step.unknown


def test_a_step_of_which_nothing_is_known() -> None:
    """It says so."""
    line = Line()
    line.blind("x = 1")
    step = line.state.step(1)
    assert (("*",), ("*",), ("the step was not traced",)) == (step.reads, step.writes, step.unknown)


def test_what_was_live(line: Line) -> None:
    """After each step, with the step that wrote it."""
    assert "df = clean(raw)" == line.state.at(2).code
    assert {"raw": 0, "clean": 1, "df": 2} == {each.name: each.step for each in line.state.at(2).variables}
    assert ["raw"] == [each.name for each in line.state.at(0).variables]
    line.run("del df", deletes=["df"])
    assert "df" not in [each.name for each in line.state.at(6).variables]


def test_what_the_namespace_said_of_its_variables() -> None:
    """They hold until the next write; deleted names are removed."""
    line = Line()
    line.run("x = 1; y = 2; z = 3", writes="xyz")
    infos = [VariableInfo(name=each, type="int", size=28) for each in "xyz"]
    line.history.described(infos)
    line.run("x = 'a'; del z", writes="x", deletes="z")
    x, y = line.state.at(2).variables
    assert (LiveVariable(name="x", step=2), "int") == (x, y.type)
    line.history.described([VariableInfo(name="x", type="str"), infos[1]])
    assert {"x": "str", "y": "int"} == {each.name: each.type for each in line.state.at(2).variables}


def test_what_was_live_after_a_step_that_was_not_traced() -> None:
    """Unknown, until the namespace is described."""
    line = Line()
    line.blind("x = 1")
    assert ((), (1,)) == (line.state.at(1).variables, line.state.at(1).unknown)
    line.history.described([VariableInfo(name="x", type="int")])
    assert (LiveVariable(name="x", type="int"),) == line.state.at(1).variables
    assert () == line.state.at(1).unknown


def test_blame_names_the_last_writer(line: Line) -> None:
    """The step, its author, the model call, and the statement."""
    line.run("note = 1\nfor i in range(3):\n    df[i] = 0\nnote = 2", reads=["df"], writes=["df", "note"])
    blame = line.state.blame("df")
    assert (6, "", "df[i] = 0") == (blame.step and blame.step.number, blame.author, blame.statement)
    assert Span(line=3, column=4, end_line=3, end_column=13) == blame.span
    assert "note = 2" == line.state.blame("note").statement
    earlier = line.state.blame("df", at=5)
    assert ("ana", "call-2", "df = clean(raw)") == (earlier.author, earlier.cause, earlier.statement)


def test_blame_of_what_was_there_at_the_start(line: Line) -> None:
    """No step wrote it."""
    assert (None, ()) == (line.state.blame("raw").step, line.state.blame("raw").doubtful)


def test_blame_of_what_was_deleted(line: Line) -> None:
    """The step that deleted it."""
    line.run("del df", deletes=["df"], author="cleo")
    blame = line.state.blame("df")
    assert ("cleo", True, "del df") == (blame.author, blame.deleted, blame.statement)


def test_blame_of_what_nobody_wrote(line: Line) -> None:
    """An error that names the nearest name; an untraced step may have written it."""
    with pytest.raises(UnknownNameError, match="totale"):
        line.state.blame("totale")
    line.blind("exec(code)")
    assert (None, (6,)) == (line.state.blame("totale").step, line.state.blame("totale").doubtful)
    known = line.state.blame("total")
    assert (3, (6,)) == (known.step and known.step.number, known.doubtful)


def test_blame_of_a_rolled_back_step(line: Line) -> None:
    """It left nothing."""
    line.run("df = None", writes=["df"], status="rolled_back")
    assert 2 == getattr(line.state.blame("df").step, "number", None)


def test_dependents_go_on_through_what_depends(line: Line) -> None:
    """Steps, and the names that they wrote and that still exist."""
    found = line.state.dependents("clean")
    assert ((2, 3, 5), ("df", "report", "total"), ()) == (found.steps, found.symbols, found.doubtful)
    assert (3, 5) == line.state.dependents(2).steps
    assert (2, 3, 5) == line.state.dependents("raw").steps
    assert () == line.state.dependents("note").steps


def test_dependents_of_what_a_symbol_holds_now(line: Line) -> None:
    """Not of its former value."""
    line.run("df = None", writes=["df"])
    line.run("df2 = df", reads=["df"], writes=["df2"])
    assert ((7,), ("df2",)) == (line.state.dependents("df").steps, line.state.dependents("df").symbols)


def test_dependents_behind_a_step_of_which_nothing_is_known(line: Line) -> None:
    """The step may depend on anything, and so may later readers; earlier steps do not."""
    line.blind("exec(code)")
    line.run("late = report", reads=["report"], writes=["late"])
    line.run("fresh = 1", writes=["fresh"])
    found = line.state.dependents("note")
    assert ((), (6, 7)) == (found.steps, found.doubtful)
    assert ((2, 3, 5, 7), (6,)) == (
        line.state.dependents("clean").steps,
        line.state.dependents("clean").doubtful,
    )


def test_a_step_that_may_have_done_more_than_it_lists(line: Line) -> None:
    """Its listed names are certain; the others are doubtful, and no location of their own."""
    trace = StepTrace(
        reads={"*": "", "name:df": ""},  # type: ignore[dict-item]
        writes={"*": "1", "name:df": "2"},  # type: ignore[dict-item]
        opaque=("it called exec",),
    )
    line.blind("exec(code); df.pop()", trace=trace)
    line.run("y = df", reads=["df"], writes=["y"])
    found = line.state.dependents("df", at=5)
    assert ((3, 5), ()) == (found.steps, found.doubtful)
    found = line.state.dependents("clean")
    assert ((2, 3, 5, 6, 7), ()) == (found.steps, found.doubtful)
    assert (("y",), ("df",), (6,)) == (
        line.state.diff(5, 7).added,
        line.state.diff(5, 7).changed,
        line.state.diff(5, 7).unknown,
    )


def test_a_slice_is_what_a_value_needs(line: Line) -> None:
    """The steps in their order, the model calls, and a program with a heading for each step."""
    found = line.state.slice("report")
    assert [1, 2, 3, 5] == [step.number for step in found.steps]
    assert ("call-1", "call-2", "call-3") == found.model_calls
    lines = found.source.splitlines()
    assert ["# step 1, ana", "def clean(d): ...", "", "# step 2, ana", "df = clean(raw)"] == lines[:5]
    assert "df = clean(raw)" == found.statements[1].text
    assert () == found.doubtful
    assert "# step 4, ben\nnote = 'hello'" == line.state.slice("note").source


def test_a_slice_through_a_step_of_which_nothing_is_known(line: Line) -> None:
    """It has everything up to that step, and says why; later steps are chosen as usual."""
    line.blind("exec(code)")
    line.run("a = report", reads=["report"], writes=["a"])
    line.run("b = 1", writes=["b"])
    assert ([1, 2, 3, 4, 5, 6, 7], (6,)) == (
        [step.number for step in line.state.slice("a").steps],
        line.state.slice("a").doubtful,
    )
    assert [8] == [step.number for step in line.state.slice("b").steps]


def test_a_slice_has_what_was_changed_by_another_name() -> None:
    """Step 3 changes the value of `q` and reads only `p`; step 2's change of `q` is in the slice all the same."""
    line, p, q = Line(), name("p"), name("q")
    line.run("p = [1]; q = [p]", writes="pq")
    in_place = {q: Version("q2")}
    line.blind(
        "q.append(2)", trace=StepTrace(reads={q: Version("q1")}, writes=in_place, mutated=frozenset((q,)))
    )
    both = {p: Version("p3"), q: Version("q3")}
    line.blind(
        "p.append(3)", trace=StepTrace(reads={p: Version("p1")}, writes=both, mutated=frozenset((p, q)))
    )
    assert [1, 2, 3] == [step.number for step in line.state.slice("q").steps]
    assert {p: 1, q: 2} == line.history.dependencies.inputs(3).seen


def test_a_slice_names_what_clients_put_in(line: Line) -> None:
    """It has no code."""
    line.run(kind="injection", names=("rate",), writes=["rate"], author="cleo")
    line.run("tax = rate * 2", reads=["rate"], writes=["tax"])
    source = line.state.slice("tax").source
    assert "# step 6: rate, put in by cleo\n\n# step 7\ntax = rate * 2" == source


def test_a_slice_leaves_out_statements_that_have_no_part(line: Line) -> None:
    """And with them the steps that only those have read from."""
    line.run("a = 1\nb = total\nc = note", reads=["total", "note"], writes="abc")
    found = line.state.slice("c")
    assert [(4, "note = 'hello'"), (6, "c = note")] == [(each.step, each.text) for each in found.statements]
    assert (None, Span(line=3, column=0, end_line=3, end_column=8)) == tuple(
        each.span for each in found.statements
    )
    assert not found.whole


def test_a_slice_has_what_a_failed_step_did_before_it_failed() -> None:
    """If those statements can be separated; later statements did not run."""
    line = Line()
    code = "x = 1\ny = [x]\nboom(y)\nx = 2"
    error = ErrorInfo(type="ValueError", message="", span=Span(line=3, column=0, end_line=3, end_column=4))
    writes = {name("x"): Version("1"), name("y"): Version("1")}
    kinds = {name("x"): ValueKind(type="int"), name("y"): ValueKind(type="list")}
    line.blind(code, trace=StepTrace(writes=writes, kinds=kinds), status="failed", error=error)
    assert ["x = 1"] == [each.text for each in line.state.slice("x").statements]
    assert [code] == [each.text for each in line.state.slice("y").statements]


def test_a_slice_needs_all_that_was_loaded_of_a_package(line: Line) -> None:
    """Each import of a part binds the same name."""
    line.run("import xml.dom", writes=["xml"])
    line.run("import xml.etree", writes=["xml"])
    assert [6, 7] == [step.number for step in line.state.slice("xml").steps]


def test_what_a_step_has_left_is_known_by_its_kind() -> None:
    """Until another step writes it, or may have."""
    line = Line()
    kinds = {name("x"): ValueKind(type="list", shape=(2,))}
    trace = StepTrace(writes={name("x"): Version("1")}, kinds=kinds)
    line.blind("x = [1, 2]", trace=trace)
    assert (LiveVariable(name="x", step=1, type="list", shape=(2,)),) == line.state.at(1).variables
    line.run("x = 3", writes="x")
    assert (LiveVariable(name="x", step=2),) == line.state.at(2).variables
    line.rollback(1)
    line.blind("exec(code)")
    assert "" == line.state.at(3).variables[0].type


def test_two_states_of_one_line(line: Line) -> None:
    """Names, and the steps in between."""
    line.run("del note; df = 0", deletes=["note"], writes=["df"])
    found = line.state.diff(4, 6)
    assert (("report",), ("note",), ("df",)) == (found.added, found.removed, found.changed)
    assert (4, (), (5, 6)) == (found.ancestor, found.left, tuple(step.number for step in found.right))


def test_two_states_of_two_lines(line: Line) -> None:
    """From their common step on; an equal value on both lines is no difference."""
    line.rollback(2)
    line.run("total = 0", writes=["total"], version="v3")
    line.run("df = 0", writes=["df"])
    found = line.state.diff(5, 7)
    assert (2, [3, 4, 5], [6, 7]) == (
        found.ancestor,
        [step.number for step in found.left],
        [step.number for step in found.right],
    )
    assert ((), ("note", "report"), ("df",)) == (found.added, found.removed, found.changed)


def test_a_difference_that_is_not_known(line: Line) -> None:
    """It names the steps that may have made other differences."""
    line.blind("exec(code)")
    assert (6,) == line.state.diff(5, 6).unknown


def test_a_difference_between_a_runtime_and_its_branch() -> None:
    """Each is a history of its own; they part where their steps do, which have the same numbers."""
    origin, branch = Line(), Line()
    origin.run("x = 1", writes="x", started=1.0)
    origin.run("y = 1", writes="y", started=2.0)
    branch.history.begin_as(origin.history)
    origin.run("x = 2", writes="x", version="ours", started=3.0)
    origin.run("z = 2", writes="z", started=4.0)
    branch.run("x = 3", writes="x", version="theirs", started=3.5)
    branch.run("del y", deletes="y", started=4.5)
    found = origin.state.diff(4, 4, branch.state)
    assert (2, [3, 4], [3, 4]) == (
        found.ancestor,
        [step.number for step in found.left],
        [step.number for step in found.right],
    )
    assert ["x = 3", "del y"] == [step.code for step in found.right]
    assert ((), ("y", "z"), ("x",)) == (found.added, found.removed, found.changed)
    back = branch.state.diff(4, 4, origin.state)
    assert (("y", "z"), (), ("x",)) == (back.added, back.removed, back.changed)
    same = origin.state.diff(2, 2, branch.state)
    assert (2, (), (), ()) == (same.ancestor, same.added, same.removed, same.changed)
    assert 0 == origin.state.diff(4, 1, _other()).ancestor
    with pytest.raises(UnknownEntryError):
        origin.state.diff(4, 99, branch.state)


def _other() -> ExecutionState:
    """Of a runtime that has nothing to do with it."""
    line = Line()
    line.run("x = 1", writes="x", started=9.0)
    return line.state


def test_steps_by_what_they_are(line: Line) -> None:
    """All conditions apply at once."""
    trace = StepTrace(writes={"file:report.md": "1"})  # type: ignore[dict-item]
    line.blind("...", trace=trace, author="ben", started=60.0)

    def numbers(**conditions: object) -> list[int]:
        return [step.number for step in line.state.steps_by(**conditions)]  # type: ignore[arg-type]

    assert [3, 4, 6] == numbers(author="ben")
    assert [2, 3] == numbers(symbol="df")
    assert [4, 5] == numbers(since=40.0, until=60.0)
    assert [6] == numbers(artifact="report.md")
    assert [3] == numbers(author="ben", symbol="df")


@pytest.mark.parametrize("ask", ["at", "step", "line", "dependents"])
def test_steps_that_are_not_there(line: Line, ask: str) -> None:
    """They are an error, not an empty answer."""
    with pytest.raises(UnknownEntryError, match="there is no step '99'"):
        getattr(line.state, ask)(99)
    with pytest.raises(UnknownEntryError):
        line.state.diff(1, 99)


def test_a_state_goes_on_with_its_runtime(line: Line) -> None:
    """Queries see the present history."""
    state = line.state
    line.run("x = 1", writes=["x"])
    assert 6 == state.head


def test_artifacts_are_told_anew_when_something_has_happened(line: Line) -> None:
    """And they are the same objects until the next event."""
    line.history.declared([ArtifactDeclared(name="total", kind="dataset")])
    before = line.state.artifact("total")
    assert before is line.state.artifact("total")
    assert [3] == [version.step for version in before.versions]
    line.run("total = 0", writes=["total"])
    assert [3, 6] == [version.step for version in line.state.artifact("total").versions]
