"""Which artifacts can be declared, and the errors for the others."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cenote.harness import Patch, TextEdit
from cenote.harness.artifacts import Artifact, ArtifactCycleError, UnknownArtifactError
from cenote.harness.artifacts.declaration import MAX_ARTIFACTS, declared, depending_last, news, with_declared
from cenote.harness.artifacts.staleness import Survey, tracked
from cenote.harness.patching.errors import PatchConflictError
from cenote_security.errors import UsageError
from cenote_worker.execution.trace import StepTrace, Version, file
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.history.step import StepRecord


def test_the_name_says_where_the_content_is() -> None:
    """A file of the working directory, or a variable; tests may be functions in many places."""
    kinds = [("clean", "function"), ("shop.py", "module"), ("t.py", "tests"), ("test_*", "tests")]
    kinds += [("report.md", "document"), ("report", "document"), ("data/raw", "dataset"), ("df", "dataset")]
    expected = ["name:clean", "file:shop.py", "file:t.py", None, "file:report.md", "name:report"]
    assert [*expected, "file:data/raw", "name:df"] == [Artifact(*each).place for each in kinds]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("", "module"), ("x", "thing"), ("/etc/a.py", "module"), ("../a.py", "module"), ("shop", "module")],
)
def test_what_is_no_artifact_is_refused(name: str, kind: str) -> None:
    """Including names that lead out of the working directory."""
    with pytest.raises(UsageError):
        Artifact(name, kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["shop.py", 5])
def test_dependencies_are_a_list(given: Any) -> None:
    """A text would be read as its letters."""
    with pytest.raises(UsageError, match="depends_on is a list"):
        Artifact("report.md", "document", depends_on=given)


def test_an_unknown_dependency_is_answered_with_the_nearest() -> None:
    """A dependency declared in the same call is known."""
    shop, text = Artifact("shop.py", "module"), Artifact("a.md", "document", ("shop.py",))
    assert {"shop.py": shop, "a.md": text} == with_declared({}, [text, shop])
    with pytest.raises(UnknownArtifactError, match=r"no artifact 'shpo.py' .* nearest names are shop.py"):
        with_declared({"shop.py": shop}, [Artifact("b.md", "document", ("shpo.py",))])


def test_nothing_depends_on_itself() -> None:
    """The error shows the cycle; a second declaration can close one too."""
    known = {"a": Artifact("a", "document"), "b": Artifact("b", "document", ("a",))}
    with pytest.raises(ArtifactCycleError, match="a -> b -> a"):
        with_declared(known, [Artifact("a", "document", ("b",))])


def test_many_ways_to_one_dependency_are_one() -> None:
    """Each layer depends on both of the layer before: following every path would take 2^100 steps."""
    layers = [
        Artifact(f"{side}{n}", "document", (f"a{n - 1}", f"b{n - 1}") if n else ())
        for n in range(100)
        for side in "ab"
    ]
    known = with_declared({}, layers)
    assert 200 == len(known)
    assert () == tracked(Survey((), known), {})[0].stale
    order = depending_last(known)
    assert all(order.index(each) < order.index(one.name) for one in layers for each in one.depends_on)


def unit(name: str, *depends_on: str, dropped: bool = False) -> ArtifactDeclared:
    return ArtifactDeclared(
        name=name, kind="" if dropped else "document", depends_on=depends_on, dropped=dropped
    )


def test_the_same_once_more_is_no_news() -> None:
    """A client that repeats an unanswered call changes nothing; a different step or author is not a change."""
    known = {"a": ArtifactDeclared(name="a", kind="document", author="ann", step=7), "b": unit("b", "a")}
    assert () == news(known, [unit("a"), unit("b", "a"), unit("gone", dropped=True)])
    changed = (unit("b"), unit("a", dropped=True), unit("c", "b"))
    assert changed == news(known, changed)


def test_what_does_not_hold_together_is_no_news_either() -> None:
    """The owner of the history refuses it, since a client may know an older history."""
    known = {"a": unit("a"), "b": unit("b", "a")}
    for asked, words in [
        (unit("a", dropped=True), "b depends on a; drop that first"),
        (unit("a", "b"), "a -> b -> a"),
        (unit("c", "x"), "no artifact 'x'"),
        (ArtifactDeclared(name="../c.py", kind="module"), "no path in the working directory"),
        (ArtifactDeclared(name="c", kind="hologram"), "kind is one of"),
    ]:
        with pytest.raises(UsageError, match=re.escape(words)):
            news(known, [asked])


def test_how_many_there_may_be() -> None:
    """At the limit, and one past it."""
    most = [unit(f"a{n}") for n in range(MAX_ARTIFACTS)]
    assert MAX_ARTIFACTS == len(news({}, most))
    with pytest.raises(UsageError, match="at most 500 artifacts"):
        news({}, [*most, unit("more")])


def test_a_kind_of_a_later_version_is_left_out() -> None:
    """A later version may have written the history."""
    units = {"a": ArtifactDeclared(name="a", kind="hologram"), "b": unit("b", "a")}
    assert {"b": Artifact("b", "document")} == declared(units)
    assert 1 == len(news(units, [unit("c", "b")]))


def cell(number: int, code: str, *files: str) -> StepRecord:
    trace = StepTrace(writes={file(each): Version("v") for each in files})
    return StepRecord(number=number, parent=number - 1, code=code, trace=trace)


def test_a_cell_that_writes_a_file_gets_the_new_source() -> None:
    """After any other step that writes it, a step that only writes the source is added."""
    pure = [cell(1, "%%writefile a.py\nx = 1\n", "a.py"), cell(2, "import a")]
    other = [cell(1, "open('a.py', 'w').write(make())", "a.py"), cell(2, "import a")]
    patch = Patch.replace_artifact("a.py", "x = 2\n")
    new = "%%writefile a.py\nx = 2\n"
    assert [new, "import a"] == [step.code for step in patch.applied(pure)]
    assert [other[0].code, new, "import a"] == [step.code for step in patch.applied(other)]


def test_a_function_is_replaced_where_it_was_defined_last() -> None:
    """Where a plain patch of the function would be ambiguous."""
    line = [cell(1, "def f():\n    return 1"), cell(2, "y = 1\ndef f():\n    return 2")]
    codes = [step.code for step in Patch.replace_artifact("f", "def f():\n    return 3").applied(line)]
    assert [line[0].code, "y = 1\ndef f():\n    return 3"] == codes


def test_lines_of_an_artifact_are_edited_where_its_text_is() -> None:
    """In the cell that writes a file, in the last definition of a function; nowhere else."""
    edit = [TextEdit(search="x = 1", replacement="x = 2")]
    pure = [cell(1, "%%writefile a.py\nx = 1\n", "a.py"), cell(2, "x = 1")]
    assert ["%%writefile a.py\nx = 2\n", "x = 1"] == [
        step.code for step in Patch.edit_artifact("a.py", edit).applied(pure)
    ]
    twice = [cell(1, "def f():\n    x = 1"), cell(2, "x = 1\ndef f():\n    x = 1")]
    assert [twice[0].code, "x = 1\ndef f():\n    x = 2"] == [
        step.code for step in Patch.edit_artifact("f", edit).applied(twice)
    ]
    with pytest.raises(PatchConflictError, match=r"step 1 has made `a\.py`, and its text is not in"):
        Patch.edit_artifact("a.py", edit).applied([cell(1, "open('a.py', 'w').write('x = 1')", "a.py")])


def test_what_nobody_has_made_cannot_be_replaced() -> None:
    """No step has a place for it."""
    with pytest.raises(
        PatchConflictError, match=r"no step has written a file `shpo.py` .* files are shop.py"
    ):
        Patch.replace_artifact("shpo.py", "").applied([cell(1, "%%writefile shop.py\n", "shop.py")])
    read = StepTrace(reads={file("a.py"): Version("v")})
    with pytest.raises(PatchConflictError, match=r"put there anew, by `runtime.files`"):
        Patch.replace_artifact("a.py", "").applied([StepRecord(number=1, code="import a", trace=read)])
