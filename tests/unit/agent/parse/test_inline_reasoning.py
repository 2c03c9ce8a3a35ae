"""InlineReasoning: reasoning text that a model writes before its answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote.agent.parse.block_parser import BlockParser
from cenote.agent.parse.scanners import InlineReasoning


def split(*pieces: str) -> tuple[str, str]:
    """The answer, and the reasoning."""
    reasoning = InlineReasoning()
    answer = "".join(reasoning.outside(piece) for piece in pieces) + reasoning.finish()
    return answer, reasoning.text


@pytest.mark.parametrize(
    ("answer", "reasoning", "text"),
    [
        ("It is 4.", "2 + 2", "<think>2 + 2</think>It is 4."),
        ("It is 4.\n", "\n2 + 2\n", "\n <think>\n2 + 2\n</think>\n\nIt is 4.\n"),
        ("It is 4.", "2", "<thinking>2</thinking>It is 4."),
        ("It is 4.", "2", "[THINK]2[/THINK]It is 4."),
        ("It is 4.", "", "<think></think>It is 4."),
        ("a </think> b", "</thinking>", "<think></thinking></think>a </think> b"),
        ("", "no end</thin", "<think>no end</thin"),
        ("The tag <think>is</think> text.", "", "The tag <think>is</think> text."),
        ("<thin", "", "<thin"),
        ("<b>4</b>", "", "<b>4</b>"),
        (" \n", "", " \n"),
        ("", "", ""),
    ],
)
def test_an_answer_is_what_follows_the_reasoning(answer: str, reasoning: str, text: str) -> None:
    """Tags at the beginning of the answer, closed or not; any other text is unchanged."""
    assert (answer, reasoning) == split(text)


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<thin", "k>", "</", "think>", "a", "\n", " "]), max_size=8
    )
)
def test_cutting_changes_nothing(pieces: list[str]) -> None:
    """The result is the same for every chunking."""
    text = "".join(pieces)
    answer, reasoning = split(text)
    assert (answer, reasoning) == split(*pieces) == split(*text)


def test_code_in_the_reasoning_is_none_of_the_answer() -> None:
    """The first block after the reasoning is the code."""
    parser = BlockParser()
    shown = parser.feed(
        "<think>\n```python\nos.remove(f)\n```\nNo.\n</think>\nLook:\n```python\nx = 1\n```\n"
    )
    assert ("Look:\n", "x = 1", True) == (shown + parser.finish(), parser.code, parser.closed)
    assert "Look:\n```python\nx = 1\n```" == parser.answer
    assert "os.remove" in parser.reasoning
