"""Search and replace by whole lines: quoted text must exist, and be unambiguous."""

from __future__ import annotations

import pytest

from cenote.harness import Patch, PatchConflictError, TextEdit
from cenote.harness.patching.text_edits import replace_text
from cenote_worker.history.step import StepRecord

CODE = """\
def clean(rows):
    kept = []
    for row in rows:
        kept.append(row)
    return kept

for row in rows:
    print(row)"""


def edit(search: str, replacement: str) -> TextEdit:
    return TextEdit(search=search, replacement=replacement)


def test_lines_are_replaced_where_they_stand() -> None:
    """All other characters stay; several edits apply in order, and an empty one removes."""
    edits = [edit("        kept.append(row)", "        kept += [row]"), edit("    return kept", "")]
    expected = CODE.replace("kept.append(row)", "kept += [row]").replace("    return kept\n", "")
    assert expected == replace_text(CODE, edits)


def test_another_indentation_is_that_of_the_place() -> None:
    """Models quote the inside of a function at the left margin; trailing blanks are ignored."""
    found = replace_text(CODE, [edit("kept = []  \nfor row in rows:", "kept = [0]\n\nfor row in rows[1:]:")])
    assert (
        CODE.replace("kept = []", "kept = [0]\n").replace("    for row in rows:", "    for row in rows[1:]:")
        == found
    )


def test_the_depth_that_was_quoted_is_preferred() -> None:
    """The same line occurs twice, once at the quoted depth."""
    assert CODE.replace("\nfor row in rows", "\nfor row in sorted(rows)") == replace_text(
        CODE, [edit("for row in rows:", "for row in sorted(rows):")]
    )


@pytest.mark.parametrize(("search", "where"), [("kept = {}", "nowhere"), ("x = 1", "more than once")])
def test_what_is_not_there_once_is_a_conflict(search: str, where: str) -> None:
    """With the matching lines, so that the model can quote them better."""
    with pytest.raises(PatchConflictError, match=where) as caught:
        replace_text(f"{CODE}\nx = 1\nx = 1", [edit(search, "y")])
    assert search == caught.value.hunk
    with pytest.raises(PatchConflictError, match="no lines to search for"):
        replace_text("a = 1\n\nb = 2", [edit("\n", "y")])


def test_an_edit_of_a_definition_touches_nothing_else() -> None:
    """The same line outside of the function stays."""
    line = [StepRecord(number=1, code=CODE), StepRecord(number=2, code="n = 1")]
    (changed, other) = Patch.edit_text("clean", [edit("for row in rows:", "for row in rows[1:]:")]).applied(
        line
    )
    assert (CODE.replace("    for row in rows:", "    for row in rows[1:]:"), "n = 1") == (
        changed.code,
        other.code,
    )
    assert "the patch edits `clean` in it" == changed.change
