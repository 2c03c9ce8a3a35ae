"""Changes of one cell's text: search and replace by whole lines, and unified diffs.

Search and replace is the form of a change that models write most reliably. In a diff, lines may have moved; all
else must be as the diff says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cenote.harness.patching.errors import PatchConflictError


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEdit:
    """These lines are replaced by those. They have to stand there once, and at any indentation."""

    search: str
    replacement: str


def replace_text(code: str, edits: Sequence[TextEdit]) -> str:
    """The code after all edits, one by one. Raises PatchConflictError for lines that are not there, or twice.

    Blanks at the ends of lines do not count. Lines that are found with another indentation, all by as much, are
    replaced with that.
    """
    for edit in edits:
        code = _replaced(code, edit)
    return code


def _replaced(code: str, edit: TextEdit) -> str:
    if not edit.search.strip():
        raise PatchConflictError("an edit has no lines to search for")
    lines, wanted = code.split("\n"), edit.search.strip("\n").split("\n")
    found = list(_places(lines, wanted))
    # Where they stand as written, the same lines at another depth are other lines.
    exact = [place for place in found if place[1] == _indent(wanted)]
    places = exact or found
    if len(places) != 1:
        problem = "more than once" if places else "nowhere"
        raise PatchConflictError(f"these lines stand {problem} in the code", edit.search.strip("\n"))
    ((at, indent),) = places
    new = _moved(edit.replacement, _indent(wanted), indent)
    return "\n".join([*lines[:at], *new, *lines[at + len(wanted) :]])


def _places(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Where the wanted lines begin, and their indentation there."""
    flat = _flat(wanted)
    for at in range(len(lines) - len(wanted) + 1):
        here = lines[at : at + len(wanted)]
        if _flat(here) == flat:
            yield at, _indent(here)


def _flat(lines: Sequence[str]) -> list[str]:
    indent = _indent(lines)
    return [line.removeprefix(indent).rstrip() for line in lines]


def _indent(lines: Sequence[str]) -> str:
    """What all lines that are not blank begin with: the least indentation."""
    found = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip()]
    return min(found, key=len, default="")


def _moved(text: str, old: str, new: str) -> list[str]:
    """The lines of a replacement, as much deeper or flatter as the place is."""
    if not text.strip("\n"):
        return []
    lines = text.strip("\n").split("\n")
    if old == new:
        return lines
    return [new + line.removeprefix(old) if line.strip() else line for line in lines]


_HEADER = re.compile(r"^@@(?: -(\d+)(?:,\d+)? \+\d+(?:,\d+)?)? ?@@|^@@\s*$")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hunk:
    """line: where the old lines are said to begin, from 1; None when the header does not say."""

    line: int | None
    old: tuple[str, ...]
    new: tuple[str, ...]
    text: str


def apply_diff(code: str, diff: str) -> str:
    """The code with all hunks applied, and the line ends that it has. Raises PatchConflictError with the first hunk
    that does not fit.
    """
    end = "\r\n" if "\r\n" in code else "\n"
    lines = code.replace("\r\n", "\n").split("\n")
    out: list[str] = []
    done = 0
    for hunk in _hunks(diff.replace("\r\n", "\n")):
        at = _place(lines, hunk, done)
        out += [*lines[done:at], *hunk.new]
        done = at + len(hunk.old)
    return end.join([*out, *lines[done:]])


def _hunks(diff: str) -> Iterator[_Hunk]:
    line: int | None = None
    body: list[str] | None = None
    found = False
    for text in diff.strip("\n").split("\n"):
        header = _HEADER.match(text)
        if header:
            if body is not None:
                yield _hunk(line, body)
            line, body, found = int(header[1]) if header[1] else None, [], True
        elif body is not None:
            body.append(text)
    if not found:
        raise PatchConflictError("this is no unified diff: it has no line that begins with @@")
    yield _hunk(line, body or [])


def _hunk(line: int | None, body: Sequence[str]) -> _Hunk:
    text = "\n".join(body)
    old, new = [], []
    for entry in body:
        mark, rest = entry[:1] or " ", entry[1:]
        if mark not in " -+\\":
            raise PatchConflictError("a line of a hunk begins with neither a space, `+` nor `-`", text)
        if mark in " -":
            old.append(rest)
        if mark in " +":
            new.append(rest)
    if old == new:
        raise PatchConflictError("a hunk changes nothing", text)
    return _Hunk(line=line, old=tuple(old), new=tuple(new), text=text)


def _place(lines: Sequence[str], hunk: _Hunk, done: int) -> int:
    """Where the hunk fits: nearest to where it says it does, not before the end of the last."""
    length = len(hunk.old)
    places = [at for at in range(done, len(lines) - length + 1) if tuple(lines[at : at + length]) == hunk.old]
    if not places:
        raise PatchConflictError("this hunk is not found in the code of the step", hunk.text)
    if hunk.line is None:
        if len(places) > 1:
            raise PatchConflictError(
                "this hunk has no line number and fits in more than one place", hunk.text
            )
        return places[0]
    said = hunk.line - 1 if length else hunk.line  # a hunk of additions names the line that it follows
    return min(places, key=lambda at: abs(at - said))
