"""What a model or a jail writes is read in a time that grows with its length, whatever it is made of.

A server reads it on the event loop that other agents wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from cenote.agent.parse.block_parser import BlockParser
from cenote.agent.parse.intended_code import intent_of, said_in
from cenote.agent.parse.patch_block import MalformedPatchError, read_patch
from cenote.agent.parse.source import is_code, source_of
from cenote.agent.prompt.observation import shown
from cenote.cave_agent.parsing import StreamingTextParser

SHORT = 2_500
LONG = 4 * SHORT

SAME = 0.1
"""Seconds of CPU below which a longer time says nothing."""

FOUR_TIMES_AS_MUCH = 12
"""What takes n² steps takes sixteen times for four times the input; n takes four."""

UNITS = [
    "\n", " ", "\t", "`", "~", "<", "{", "[", "(", '"', "'", "#", ">", "\\", "a", "1", "\ufeff",
    "\r\n", " \n", "a\n", "a ", "``", "```\n", "```a", "```\na\n", "~~~\n", "<a>", "<code>", "<code>\n", "</s>",
    "</think>", "<think>", "[TOOL_CALLS]", '{"a":', "{'a':", "['", "\\'", '"""', "'''", "'''python\n", "``python\n",
    "a (b)\n", "f (x)\n", "f(", ">>> ", ">>> a\n", "In [1]: a\n", "Action: a\n", "Action Input:", "<parameter=a>a",
    "<function=a>", "<tool_call>", "<tool_call>a{", "<arg_key>a</arg_key>", "<|channel|>", "<|message|>", ": {",
    "ab: {'", "\uff40\uff40\uff40python\n", "[PYTHON]\n", "@@\n", "-a\n", "+a\n", "<<<<<<< SEARCH\n", "=======\n",
    "\r", "\b", "a\r", "a\b",
    "\x1b[A", "\x1b[1K", "\x1b[K", "a\x1b[2K", "\x1b[Aa",
]  # fmt: skip
STARTS = ["", "```python\n", "```python\nx = '''\n", "```python\nx = 1\n```\n"]


def in_pieces(answer: str) -> None:
    parser = BlockParser()
    for start in range(0, len(answer), 8):
        parser.feed(answer[start : start + 8])
    parser.finish()


def whole(answer: str) -> None:
    parser = BlockParser()
    parser.feed(answer)
    parser.finish()


def in_the_terms_of_cave_agent(answer: str) -> None:
    parser = StreamingTextParser()
    parser.process_chunk(answer)
    parser.flush()


def as_a_patch(answer: str) -> None:
    with suppress(MalformedPatchError):
        read_patch(f"step 1\n{answer}")


READERS = [
    intent_of,
    said_in,
    source_of,
    is_code,
    whole,
    in_pieces,
    in_the_terms_of_cave_agent,
    as_a_patch,
    shown,
]


def seconds(reader: Callable[[str], object], text: str) -> float:
    """The least of three runs, or one that is short."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        reader(text)
        best = min(best, time.process_time() - start)
        if best < SAME:
            break
    return best


def repeated(start: str, unit: str, part: int, length: int) -> str:
    return start + unit * (length // part // len(unit))


def excess(reader: Callable[[str], object], make: Callable[[int], str]) -> float:
    """How much longer the long text takes than the short one, where that is noticeable.

    Too much is looked at again: a busy machine makes one look longer, hardly each of them.
    """
    ratio = 1.0
    for _ in range(4):
        long = seconds(reader, make(LONG))
        ratio = long / seconds(reader, make(SHORT)) if long > SAME else 1
        if ratio < FOUR_TIMES_AS_MUCH:
            break
    return ratio


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_four_times_the_text_takes_about_four_times_as_long(
    reader: Callable[[str], object], start: str
) -> None:
    """For everything that a pattern or a parser looks for, again and again."""
    slow = {}
    # This one takes each character by itself: a third of a text already takes long enough to compare.
    units, part = (UNITS[:20], 3) if reader is in_the_terms_of_cave_agent else (UNITS, 1)
    for unit in units:
        ratio = excess(reader, partial(repeated, start, unit, part))
        if ratio > FOUR_TIMES_AS_MUCH:
            slow[unit] = round(ratio)
    assert {} == slow


def test_erasing_what_is_left_of_a_cursor_takes_no_longer_each_time() -> None:
    """Each erasure of a long line would take as long as the line."""
    assert excess(shown, lambda length: "a" * length + "\x1b[1K" * length) < FOUR_TIMES_AS_MUCH


def test_a_cursor_that_moves_up_makes_no_more_of_a_text() -> None:
    """As on a terminal, which is only so wide: n characters on each of n lines would be n²."""
    drawn = "\n" * 2_000 + "a" * 20_000 + "\x1b[Ab" * 2_000
    assert len(shown(drawn)) < 30 * len(drawn)
