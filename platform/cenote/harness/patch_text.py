"""Search and replace in the code of a step, by whole lines: the form of a change that models write most reliably."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cenote.harness.patch_errors import PatchConflictError


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
