"""Unified diffs over one cell: lines may have moved, all else must be as the diff says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cenote.harness.patch_errors import PatchConflictError

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
