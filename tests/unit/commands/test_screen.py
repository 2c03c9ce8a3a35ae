"""Tests of `cenote.terminal.screen`."""

from __future__ import annotations

import io
import sys
import threading

import pytest
from tests.waiting import until

from cenote.cli.main import main
from cenote.terminal.screen import BOLD, Screen, counted


class FakeTerminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_plain_lines() -> None:
    """No styles, no progress, and the exact characters that were written."""
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out, err)
    screen.progress("working")
    screen.line("heading", BOLD)
    screen.write("\x1b[31mred")
    assert ("heading\n\x1b[31mred", "") == (out.getvalue(), err.getvalue())


def test_a_terminal_gets_styles_and_no_foreign_escapes() -> None:
    """Cenote's styles work; an escape sequence in the text is made visible."""
    out = FakeTerminal()
    Screen(out, io.StringIO()).write("\x1b[2Jtext", BOLD)
    assert "\x1b[1m\\x1b[2Jtext\x1b[0m" == out.getvalue()


def test_progress_is_wiped_by_output() -> None:
    """On a terminal, progress is shown until something is printed; then its line is empty again."""
    out, err = FakeTerminal(), FakeTerminal()
    screen = Screen(out, err)
    screen.progress("working")
    screen.line("done")
    assert "\r\x1b[K\x1b[2mworking\x1b[0m\r\r\x1b[K" == err.getvalue()


def test_why_a_command_ends_stands_where_progress_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a separate line, with no remaining progress after it."""
    err = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("CENOTE_ADDRESS", "127.0.0.1:9")
    assert 4 == main(["exec", "-c", "1"])
    progress, ending = err.getvalue().split("\x1b[0m")
    assert "starting a jail" in progress
    assert ending.startswith("\rcenote: error: no platform answers at 127.0.0.1:9")
    assert ending.endswith("\x1b[K\n")


def test_a_line_starts_at_the_left() -> None:
    """After text without a line end, a line starts on a new one."""
    out = io.StringIO()
    screen = Screen(out, io.StringIO())
    screen.write("half")
    screen.line("whole")
    assert "half\nwhole\n" == out.getvalue()


def test_numbers_with_their_nouns() -> None:
    """One is singular, and zero is a word."""
    assert ("no tasks", "1 task", "2 tasks") == tuple(counted(number, "task") for number in range(3))
    assert ("1 entry", "3 entries") == tuple(counted(number, "entry", "entries") for number in (1, 3))


def test_what_takes_long_says_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, from its third second on; the line is empty afterwards, and no thread writes to it any more."""
    monkeypatch.setattr("cenote.terminal.screen._TICK", 0.001)
    monkeypatch.setattr("cenote.terminal.screen._SOON", 0.0)
    err = FakeTerminal()
    before = threading.active_count()
    with Screen(io.StringIO(), err).busy("starting") as going_on:
        until(lambda: "starting (0 s)" in err.getvalue())
        going_on("ending")
        until(lambda: "ending (0 s)" in err.getvalue())
    assert err.getvalue().endswith("\r\x1b[K")
    assert before == threading.active_count()


def test_a_pipe_gets_no_seconds() -> None:
    err = io.StringIO()
    with Screen(io.StringIO(), err).busy("starting") as going_on:
        going_on("ending")
    assert err.getvalue() == ""


def test_the_line_is_free_for_the_error_that_ended_it() -> None:
    err = FakeTerminal()
    with pytest.raises(ValueError, match="why"), Screen(io.StringIO(), err).busy("starting"):
        raise ValueError("why")
    assert err.getvalue().endswith("\r\x1b[K")
