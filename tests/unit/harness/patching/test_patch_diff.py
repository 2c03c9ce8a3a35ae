"""Unified diffs: lines may have moved, everything else must match."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote.harness.patching.errors import PatchConflictError
from cenote.harness.patching.text_edits import apply_diff

CODE = "a = 1\nb = 2\nc = 3\nd = 4"

lines = st.lists(st.sampled_from(["a", "b", "", " c", "-d", "+e", "@@"]), max_size=12)


@given(lines, lines)
def test_any_diff_leads_from_one_text_to_the_other(old: list[str], new: list[str]) -> None:
    """Diffs made by `difflib`, for arbitrary lines."""
    diff = "\n".join(difflib.unified_diff(["first", *old], ["first", *new], lineterm="", n=2))
    if diff:
        assert "\n".join(["first", *new]) == apply_diff("\n".join(["first", *old]), diff)


@pytest.mark.parametrize("header", ["@@ -2,2 +2,2 @@", "@@ -90,2 +90,2 @@ def f():", "@@", "@@ @@"])
def test_a_hunk_may_have_moved(header: str) -> None:
    """Its line number is a hint, or is missing."""
    assert CODE.replace("b = 2", "b = 5") == apply_diff(
        CODE, f"--- x\n+++ y\n{header}\n a = 1\n-b = 2\n+b = 5\n c = 3"
    )


def test_the_nearest_place_is_taken() -> None:
    """The nearest of several that match."""
    assert "x\ny\nz\ny" == apply_diff("x\ny\nx\ny", "@@ -3 +3 @@\n-x\n+z")


@pytest.mark.parametrize(
    ("diff", "words"),
    [
        ("@@ -1 +1 @@\n-a = 2\n+a = 3", "not found"),
        ("@@ -1 +1 @@\n-a = 1 \n+a = 3", "not found"),
        ("a = 3", "no unified diff"),
        ("@@ -1 +1 @@\na = 1", "begins with neither"),
        ("@@ -1 +1 @@\n a = 1", "changes nothing"),
        ("@@ -3 +3 @@\n-c = 3\n+c = 4\n@@ -1 +1 @@\n-a = 1\n+a = 2", "not found"),
    ],
)
def test_a_hunk_that_does_not_fit_is_reported(diff: str, words: str) -> None:
    """With its text, so that a model can correct it."""
    with pytest.raises(PatchConflictError, match=words):
        apply_diff(CODE, diff)


def test_a_hunk_without_a_place_that_fits_twice_is_a_conflict() -> None:
    """It is shown."""
    with pytest.raises(PatchConflictError, match="more than one place") as raised:
        apply_diff("x\nx", "@@\n-x\n+y")
    assert "-x\n+y" == raised.value.hunk


@pytest.mark.parametrize("code", ["a = 1\nb = 2\n", "a = 1\r\nb = 2\r\n"])
@pytest.mark.parametrize("diff", ["@@ -1 +1 @@\n-a = 1\n+a = 3\n", "@@ -1 +1 @@\r\n-a = 1\r\n+a = 3\r\n"])
def test_line_ends_are_those_of_the_code(code: str, diff: str) -> None:
    """The author of a diff does not see them."""
    assert code.replace("1", "3") == apply_diff(code, diff)
