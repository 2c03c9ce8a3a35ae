"""Tests of `cenote.terminal.plain_text`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote.terminal.plain_text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünïcode, 日本\n\t", "plain, ünïcode, 日本\n\t"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),  # clears the screen, retitles the window
        ("\x9b31m", "\\x9b31m"),  # an escape in one C1 character
        ("10%\r20%", "10%\r20%"),  # a progress bar
        ("a\ud800b", "a?b"),  # half of a surrogate pair, which no stream can encode
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    """What would act on the terminal is shown instead; line breaks, tabs and progress bars work."""
    assert shown == printable(text)


@given(st.text(st.characters(codec=None)))
def test_nothing_acts_on_a_terminal(text: str) -> None:
    """Whatever goes in, only printable text, `\\n`, `\\t` and `\\r` come out, and any stream can encode it."""
    shown = printable(text)
    shown.encode("utf-8")
    assert set() == {c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160} - set("\n\t\r")
