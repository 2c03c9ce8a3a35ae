"""Tests of `cenote_security.printable`: shown text can neither act on a terminal nor pass for something else."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote_security.options import parse_size
from cenote_security.printable import printable, shown_size

ANY = st.text(st.characters(codec=None))

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f"
"""Emoji that are made of several characters, with joiners and a variation selector."""


NAME_IN_PERSIAN = "\u0646\u0627\u0645\u0647\u200c\u0627\u06cc"
"""It is written with non-joiners."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünïcode, 日本\n\t", "plain, ünïcode, 日本\n\t"),
        ("a\xa0b", "a\xa0b"),
        (FAMILY, FAMILY),
        (NAME_IN_PERSIAN, NAME_IN_PERSIAN),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),  # clears the screen, retitles the window
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31m", "\\x9b31m"),  # an escape in one C1 character
        ("10%\r20%", "10%\\r20%"),
        ("a\0b", "a\\x00b"),
        ("a\ud800b", "a\\ud800b"),  # half of a surrogate pair, which no stream can encode
        ("user\u202egnp.exe", "user\\u202egnp.exe"),  # shown as userexe.png
        ("a\u2066b\u2069\u200f", "a\\u2066b\\u2069\\u200f"),
        ("one\u2028two", "one\\u2028two"),
        ("pay\u200bpal\ufeff", "pay\\u200bpal\\ufeff"),
        ("\U000e0048\U000e0069", "\\U000e0048\\U000e0069"),  # an instruction that only a model reads
    ],
)
def test_lines(text: str, shown: str) -> None:
    """Line ends, tabs and the characters of scripts work; no other character acts or is invisible."""
    assert shown == printable(text, lines=True)


def test_one_line() -> None:
    """For names and the like, where a line end would begin a line that seems to come from another source."""
    assert "a\\nb\\tc\\x1b[0m\\u202e" == printable("a\nb\tc\x1b[0m\u202e")
    assert "naïve 日本" == printable("naïve 日本")


def test_progress_bars() -> None:
    """On a terminal a line may overwrite itself."""
    assert "10%\r20%\\x1b[2J" == printable("10%\r20%\x1b[2J", progress=True)


@pytest.mark.parametrize(
    ("lines", "progress", "passing"),
    [(True, False, "\n\t"), (True, True, "\n\t\r"), (False, False, "")],
)
@given(text=ANY)
def test_nothing_acts(text: str, lines: bool, progress: bool, passing: str) -> None:
    """For any input: no control character and no direction mark is in the output, and any stream can encode it."""
    shown = printable(text, lines=lines, progress=progress)
    shown.encode("utf-8")
    assert set() == {char for char in shown if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")} - set(
        passing
    )
    directions = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert set() == {char for char in shown if unicodedata.bidirectional(char) in directions}
    assert shown == printable(shown, lines=lines, progress=progress)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (3 * 2**19, "1.5 MiB"),
        (2 * 2**30, "2 GiB"),
        (2**43, "8 TiB"),
    ],
)
def test_sizes_in_words(size: int, shown: str) -> None:
    """Sizes in the form in which they can be given."""
    assert shown == shown_size(size)
    assert size == parse_size(shown)
