"""Which artifacts are out of date, and the history in which none is: without running anything."""

from __future__ import annotations

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from tests.support.artifacts.programs import (
    Derive,
    Edit,
    Operation,
    Write,
    code_of,
    codes_of,
    operation_of,
    place,
    run,
)

from cenote.harness.artifacts import Artifact, UnbuildableError
from cenote.harness.artifacts.arrangement import Arrangement, arrangement
from cenote.harness.artifacts.staleness import Survey
from cenote.harness.patching.patched_history import recorded_line
from cenote_worker.execution.trace import ABSENT, Location, StepTrace, Version, file, name
from cenote_worker.history.step import StepRecord

MODULES = {path: Artifact(path, "module") for path in ("a.py", "b.py")}
REPORT = Artifact("report.md", "document")

paths = st.sampled_from(sorted(MODULES))
texts = st.sampled_from(["1", "2", "3"])
targets = st.sampled_from(["x", "y", "report.md", "b.py"])
sources = st.lists(st.sampled_from(["a.py", "b.py", "x", "y"]), max_size=3).map(tuple)
operations = st.one_of(
    st.builds(Write, paths, texts),
    st.builds(Edit, paths, texts, st.sampled_from(["", "x", "y"])),
    st.builds(Derive, targets, sources),
)
programs = st.lists(operations, max_size=9)


def surveyed(*program: Operation, **more: Artifact) -> Survey:
    records, _ = run([code_of(each) for each in program])
    return Survey(records, {**MODULES, **{one.name: one for one in more.values()}})


def arranged(program: list[Operation]) -> tuple[list[str], list[StepRecord]]:
    """The codes of the arranged history, and the records of its full run."""
    records, store = run([code_of(each) for each in program])
    survey = Survey(records, MODULES)
    needed = arrangement(survey)
    contents = {path: store[place(path)] for path in needed.unread}
    line = needed.change(contents).on(recorded_line(records))
    found, _ = run(codes_of(line), [step.number for step in line])
    try:
        needed.check(survey, found)
    except UnbuildableError:
        reject()
    return codes_of(line), found


@settings(max_examples=60, deadline=None)
@given(programs)
@example([Write("a.py", "1"), Derive("x", ("a.py",)), Edit("a.py", "2"), Edit("a.py", "3")])
@example([Write("a.py", "1"), Derive("x", ("a.py",)), Derive("y", ("a.py",)), Write("a.py", "2")])
@example([Derive("x", ("a.py", "b.py")), Derive("b.py", ("a.py",)), Write("a.py", "1")])
def test_the_arranged_history_has_nothing_out_of_date(program: list[Operation]) -> None:
    """For any change after a use, in any order."""
    _, records = arranged(program)
    survey = Survey(records, MODULES)
    assert ({}, True) == (survey.outdated, arrangement(survey).empty)


@settings(max_examples=60, deadline=None)
@given(programs)
def test_the_sources_stay_what_they_are(program: list[Operation]) -> None:
    """Arranging changes when a file has its newest text, never the text itself, unless it is made from others."""
    _, before = run([code_of(each) for each in program])
    codes, _ = arranged(program)
    _, after = run(codes)
    made = {one.target for one in program if isinstance(one, Derive)}
    made |= {one.path for one in program if isinstance(one, Edit) and one.using}
    for path in MODULES.keys() - made:
        assert before.get(place(path)) == after.get(place(path))


@settings(max_examples=60, deadline=None)
@given(programs)
def test_what_is_not_out_of_date_comes_out_the_same(program: list[Operation]) -> None:
    """No affected step is missed: every step reported as current writes there what it wrote."""
    records, _ = run([code_of(each) for each in program])
    survey = Survey(records, MODULES)
    codes, again = arranged(program)
    for index, record in enumerate(records):
        operation = operation_of(record.code)
        derived = isinstance(operation, Derive) and operation.target not in MODULES
        if derived and index not in survey.outdated:
            written = [one.trace and dict(one.trace.writes) for one in again if one.code == record.code]
            assert record.trace is not None
            assert dict(record.trace.writes) in written, codes


def test_the_reason_names_who_used_what_too_early() -> None:
    """Directly, and through an intermediate step."""
    survey = surveyed(
        Write("a.py", "1"), Derive("x", ("a.py",)), Derive("report.md", ("x",)), Write("a.py", "2"), r=REPORT
    )
    late = "step 2 used `a.py` as it was before step 4"
    assert {1: late, 2: f"{late}, and step 3 depends on that"} == {
        index: outdated.reason(survey.line[index].number) for index, outdated in survey.outdated.items()
    }


def test_the_same_text_again_is_no_change() -> None:
    """Versions are compared, not times."""
    survey = surveyed(Write("a.py", "1"), Derive("x", ("a.py",)), Write("a.py", "2"), Write("a.py", "1"))
    assert {} == survey.outdated


def test_the_next_state_of_data_is_no_new_version_of_it() -> None:
    """A table gets a column in place; made again, it is a new version."""
    data = Artifact("data.csv", "dataset")
    grown = surveyed(Write("data.csv", "1"), Derive("x", ("data.csv",)), Edit("data.csv", "2"), d=data)
    other = surveyed(Write("data.csv", "1"), Derive("x", ("data.csv",)), Write("data.csv", "2"), d=data)
    assert ([], [1]) == (list(grown.outdated), list(other.outdated))


def test_a_declared_dependency_has_its_artifact_made_again() -> None:
    """A text about a module has not read it: its step runs again, though nothing it read has changed."""
    text = Artifact("report.md", "document", ("a.py",))
    survey = surveyed(Write("a.py", "1"), Derive("report.md", ()), Write("a.py", "2"), r=text)
    needed = arrangement(survey)
    assert ((3, 2), {2: "`report.md` depends on `a.py`, which is different now"}) == (
        needed.moved[0][:2],
        needed.again,
    )


def test_a_step_of_which_nothing_is_known_depends_on_all() -> None:
    """Unknown means dependent."""
    records, _ = run([code_of(Write("a.py", "1")), code_of(Derive("x", ())), code_of(Write("a.py", "2"))])
    records[1] = StepRecord(number=2, parent=1, code="eval('f()')")
    assert [1] == list(Survey(records, MODULES).outdated)


def test_a_change_that_needs_what_came_between_stays() -> None:
    """Its result is written before the first use instead."""
    survey = surveyed(Write("a.py", "1"), Derive("y", ("a.py",)), Derive("x", ()), Derive("a.py", ("x",)))
    needed = arrangement(survey)
    assert ((), {"a.py": 2}) == (needed.moved, needed.unread)


def test_an_edit_in_two_steps_is_one() -> None:
    """A step that reads the text only for the step that writes it is not a user of it, and moves with it."""
    survey = surveyed(
        Write("a.py", "1"), Derive("y", ("a.py",)), Derive("x", ("a.py",)), Derive("a.py", ("x",))
    )
    assert {1: {"a.py": 4}} == survey.late
    assert [(3, 2), (4, 2)] == [each[:2] for each in arrangement(survey).moved]
    more = surveyed(Write("a.py", "1"), Derive("x", ("a.py",)), Derive("y", ("x",)), Derive("a.py", ("x",)))
    assert [1, 2, 3] == list(more.outdated)  # others may use the read value, too


@pytest.mark.parametrize(
    ("code", "ahead"), [("def f():\n    return 2\ny = x", "def f():\n    return 2"), ("f = g\ny = x", "")]
)
def test_a_function_that_cannot_move(code: str, ahead: str) -> None:
    """Its definition is written before the first use; code that is not a definition is refused."""
    f, x, y = (name(each) for each in "fxy")
    steps: list[tuple[str, dict[Location, Version], dict[Location, Version]]] = [
        ("def f():\n    return 1", {}, {f: Version("1")}),
        ("x = f()", {f: Version("1")}, {x: Version("1")}),
        (code, {x: Version("1")}, {f: Version("2"), y: Version("1")}),
    ]
    records = [
        StepRecord(number=number, parent=number - 1, code=code, trace=StepTrace(reads=reads, writes=writes))
        for number, (code, reads, writes) in enumerate(steps, 1)
    ]
    survey = Survey(records, {"f": Artifact("f", "function")})
    if not ahead:
        with pytest.raises(UnbuildableError, match="step 3 has changed it, and does more than define it"):
            arrangement(survey)
        return
    assert [(ahead, 2)] == [each[:2] for each in arrangement(survey).written]


def uploaded(content: str) -> tuple[list[StepRecord], Arrangement]:
    records, _ = run([code_of(Write("a.py", "1")), code_of(Derive("x", ("a.py",)))])
    trace = StepTrace(writes={file("a.py"): Version("?step 3")})
    upload = StepRecord(number=3, parent=2, kind="upload", names=("a.py",), content=content, trace=trace)
    records.append(upload)
    return records, arrangement(Survey(records, MODULES))


def test_an_upload_comes_before_the_first_use() -> None:
    """Like any step that only writes the file."""
    records, needed = uploaded("digest")
    assert [1, 3, 2] == [step.number for step in needed.change({}).on(recorded_line(records))]


def test_an_upload_whose_content_is_not_kept_cannot_be_moved() -> None:
    """A file that a client uploaded is written by a step, and the upload is not in that history."""
    records, needed = uploaded("")
    codes = codes_of(needed.change({"a.py": "new"}).on(recorded_line(records)))
    assert [records[0].code, "%%writefile a.py\nnew", records[1].code] == codes


def test_what_was_removed_cannot_be_brought_up_to_date() -> None:
    """The error names the step that needs it."""
    records, _ = run([code_of(Write("a.py", "1")), code_of(Derive("x", ("a.py",)))])
    trace = StepTrace(writes={file("a.py"): ABSENT})
    records.append(StepRecord(number=3, parent=2, kind="removal", names=("a.py",), trace=trace))
    with pytest.raises(UnbuildableError, match="step 3 has removed it, and step 2 needs it"):
        arrangement(Survey(records, MODULES))
