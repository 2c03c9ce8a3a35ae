"""Tables of text, and a screen that shows one and draws it anew, as long as a command runs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from cenote_security.printable import printable

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
"""The terminal's second screen, without a cursor; what was there comes back after."""


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns as wide as they need; the titles first."""
    lines = [titles, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def fitted(lines: Sequence[str], columns: int, rows: int) -> list[str]:
    """As many as there is room for, the last one saying how many are left out; each cut to the width."""
    shown = [line if len(line) <= columns else f"{line[: max(columns - 1, 0)]}…" for line in lines]
    if len(shown) <= rows:
        return shown
    left_out = len(shown) - rows + 1
    return [*shown[: rows - 1], f"… and {left_out} more"[:columns]]


class LiveScreen:
    """Draws pages of lines in place of each other."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def draw(self, lines: Sequence[str]) -> None:
        """Untrusted text; control characters in it are made visible."""
        size = shutil.get_terminal_size()
        shown = fitted([printable(line) for line in lines], size.columns, size.lines - 1)
        # Each line is cleared behind itself and the rest below: clearing the whole screen first would flicker.
        self._out.write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in shown) + "\x1b[J")
        self._out.flush()


@contextmanager
def live_screen(out: TextIO | None = None) -> Iterator[LiveScreen]:
    """The former content of the terminal comes back at the end, whatever ends it."""
    out = sys.stdout if out is None else out
    out.write(_ENTER)
    out.flush()
    try:
        yield LiveScreen(out)
    finally:
        out.write(_LEAVE)
        out.flush()
