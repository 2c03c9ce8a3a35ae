"""Where a command prints: styled, with progress, on a terminal; plain lines in a pipe.

Also tables of text, and a screen that shows one and draws it anew, as long as a command runs.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

from cenote_security.printable import printable

DIM, BOLD, RED, GREEN, YELLOW, CYAN = "2", "1", "31", "32", "33", "36"


_TICK: Final = 0.5
_SOON: Final = 2.0
"""Seconds that need no number."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """The number with its noun: `1 task`, `2 tasks`, `no tasks`. plural: where it is not the noun with an s."""
    return f"{number or 'no'} {noun if number == 1 else plural or f'{noun}s'}"


def let_go_of_stdout() -> None:
    """What is printed from now on goes nowhere: its reader has left, or its disk is full."""
    # The interpreter flushes stdout once more at exit; into /dev/null that cannot fail and print a trace.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Screen:
    """Two streams of one command: `out` for what was asked for, `err` for what happens meanwhile.

    Progress is shown only when `err` is a terminal, colours only when the stream they go to is one.
    """

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out if out is not None else sys.stdout
        self._err = err if err is not None else sys.stderr
        self._progress_shown = False
        self._mid_line = False

    @property
    def styled(self) -> bool:
        return self._out.isatty() and not os.environ.get("NO_COLOR")

    @property
    def draws(self) -> bool:
        """Whether the characters of boxes and lines can be written."""
        try:
            "─│┐┘".encode(self._out.encoding or "ascii")
        except UnicodeEncodeError:
            return False
        return True

    def style(self, text: str, *codes: str) -> str:
        """`text` in a style where styles show, else as it is."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self.styled and codes and text else text

    def write(self, text: str, *codes: str) -> None:
        """Writes untrusted text at once: exactly into a pipe, control characters made visible on a terminal."""
        self.clear_progress()
        if text:
            self._mid_line = not text.endswith("\n")
            shown = self.style(printable(text, progress=True), *codes) if self._out.isatty() else text
            self._out.write(shown)
            self._out.flush()

    def line(self, text: str = "", *codes: str) -> None:
        """One line of its own, even after text that did not end its line."""
        self.end_line()
        self.write(text, *codes)
        self.write("\n")

    def end_line(self) -> None:
        """Begins a new line unless one has begun."""
        if self._mid_line:
            self.write("\n")

    def write_error(self, text: str) -> None:
        """The same for `err`."""
        self.clear_progress()
        self._err.write(printable(text, progress=True) if self._err.isatty() else text)
        self._err.flush()

    def note(self, text: str) -> None:
        """One line beside the output, on `err`."""
        self.write_error(f"{text}\n")

    def progress(self, text: str) -> None:
        """Shows what is going on now, on a terminal; the next output replaces it.

        It leaves the cursor at the left, where what comes by no screen begins, such as why a command ends.
        """
        if self._err.isatty():
            self._err.write(f"\r\x1b[K\x1b[2m{printable(text)}\x1b[0m\r")
            self._err.flush()
            self._progress_shown = True

    @contextmanager
    def busy(self, text: str) -> Iterator[Callable[[str], None]]:
        """Shows it as progress while inside, with the seconds that it has taken once these are more than two. Gives a
        function that changes the text.
        """
        self.progress(text)
        if not self._err.isatty():
            yield lambda _: None
            return
        shown, began, ended = [text], time.monotonic(), threading.Event()

        def tick() -> None:
            while not ended.wait(_TICK):
                seconds = time.monotonic() - began
                self.progress(f"{shown[0]} ({seconds:.0f} s)" if seconds > _SOON else shown[0])

        thread = threading.Thread(target=tick, name="cenote-progress", daemon=True)
        thread.start()
        try:
            yield lambda text: shown.__setitem__(0, text)
        finally:
            ended.set()
            thread.join()
            self.clear_progress()

    def clear_progress(self) -> None:
        if self._progress_shown:
            self._err.write("\r\x1b[K")
            self._err.flush()
            self._progress_shown = False


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
