"""BlockParser: the first code block of an answer, whatever the chunking."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.agent.parse.block_parser import BlockParser


def parse(*pieces: str, language: str = "python", cut_off: bool = False) -> tuple[str, str | None, bool]:
    """Shown text, code, and whether the block was closed."""
    parser = BlockParser(language)
    shown = "".join(parser.feed(piece) for piece in pieces) + parser.finish(cut_off=cut_off)
    return shown, parser.code, parser.closed


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("x = 1", "```python\nx = 1\n```"),
        ("x = 1", "Let me look.\n\n```python\nx = 1\n```\nDone."),
        ("x = 1", "````python\nx = 1\n````"),
        ("x = 1", "~~~python\nx = 1\n~~~"),
        ("x = 1", "~~~~~ py\nx = 1\n~~~~~~~"),
        ("x = 1", "```py\nx = 1\n```"),
        ("x = 1", "```python3\nx = 1\n```"),
        ("x = 1", '```Python title="a.py"\nx = 1\n```'),
        ("x = 1", "``` python\nx = 1\n```  "),
        ("x = 1", "```{python}\nx = 1\n```"),
        ("x = 1", "```{.python .numberLines}\nx = 1\n```"),
        ("if x:\n    y", "   ```python\n   if x:\n       y\n   ```"),
        ("x\ny", "  ```python\nx\n  y\n```"),
        ("if x:\n  y", "1. look\n\n    ```python\n    if x:\n      y\n    ```\n2. think"),
        ("x = 1\ny = 2", "```python\r\nx = 1\r\ny = 2\r\n```\r\n"),
        ("x = 1", "First:```python\nx = 1\n```"),
        ("x = 1", "```python\nx = 1\n````"),
        ("x = 1", "```python\nx = 1"),
        ("", "```python"),
        ("x = 1", "```json\n{}\n```\n```python\nx = 1\n```"),
        ("x = 1", "```\noutput\n```\n\n```python\nx = 1\n```\n```python\ny = 2\n```"),
        ("x = '`'", "```python\nx = '`'\n```"),
        ("~~~", "```python\n~~~\n```"),
        ("``", "```python\n``\n```"),
    ],
)
def test_the_first_block_is_the_code(code: str, answer: str) -> None:
    """Fences of any length and kind, info strings, indentation, an unclosed block: the first block counts."""
    assert code == parse(answer)[1]


def test_a_block_without_code_is_text_and_the_next_one_counts() -> None:
    """Models open a block, think again, and open another. There is nothing to run in the first."""
    answer = "Look:\n```python\n\n```\nNow:\n```python\nx = 1\n```"
    assert ("Look:\n```python\n\n```\nNow:\n", "x = 1") == parse(answer)[:2]
    assert ("Nothing to run.\n```python\n```", None) == parse("Nothing to run.\n```python\n```")[:2]
    assert ("Late:```python\n```\n", "x") == parse("Late:```python\n```\n```python\nx\n```")[:2]


@pytest.mark.parametrize(
    "answer",
    [
        "no block at all",
        "```json\n{}\n```",
        "```\nx = 1\n```",
        "inline `python` and ```python``` code",
        "```python x``` in a line",
        "````markdown\n```python\nx = 1\n```\n````",
        "~~~text\n```python\nx = 1\n```\n~~~",
        "```pythonista\nx\n```",
        "``\npython\n``",
        " " * 17 + "~~~python\nx",
        "```" + "i" * 201 + " python\nx\n```",
    ],
)
def test_anything_else_is_text(answer: str) -> None:
    """Blocks in other languages, quoted blocks and inline code are text, shown unchanged."""
    assert (answer, None, False) == parse(answer)


def test_a_fence_inside_a_literal_is_part_of_the_code() -> None:
    """A closing fence counts only where the Python source is not inside a string."""
    code = 'text = """\n```json\n{}\n```\n"""\nprint(text)'
    assert ("", code, True) == parse(f"```python\n{code}\n```\nThat is it.")


def test_a_literal_that_never_ends_does_not_swallow_the_answer() -> None:
    """When the answer ends inside a literal, the first fence within it ends the block."""
    parser = BlockParser()
    parser.feed('```python\nx = """oops\n```\nIt is done.\n```\n')
    parser.finish()
    assert ('x = """oops', True) == (parser.code, parser.closed)
    assert '```python\nx = """oops\n```' == parser.answer


def test_a_cut_off_literal_keeps_the_block_open() -> None:
    """An answer that was cut off inside a literal is not closed by a fence in it."""
    assert ("", 'x = """a\n```\nb', False) == parse('```python\nx = """a\n```\nb', cut_off=True)


def test_a_comment_with_an_apostrophe_opens_no_literal() -> None:
    """`don't` in a comment must not hide the closing fence."""
    assert "x = 1  # don't" == parse("```python\nx = 1  # don't\n```\nmore\n```\n")[1]


def test_the_text_around_the_block_is_shown_without_it() -> None:
    """Text before the block is shown; the block and the text after it are not."""
    assert ("Look:\n", "x", True) == parse("Look:\n```python\nx\n```\nOutput: 5")


def test_text_is_shown_at_once_when_it_cannot_open_a_block() -> None:
    """Only text that may still become a fence is delayed."""
    parser = BlockParser()
    assert ["Hel", "lo ", "", "`a` ", "b"] == [parser.feed(p) for p in ("Hel", "lo ", "`", "a` ", "b")]


def test_the_answer_ends_with_the_block() -> None:
    """Text after a closed block is not part of the stored answer."""
    parser = BlockParser()
    parser.feed("So:\n```python\nx\n```\nOutput: 5")
    assert "So:\n```python\nx\n```" == parser.answer


def test_overrun_tells_text_after_the_block_from_blanks() -> None:
    """Blanks after the block do not stop the model; a word does."""
    parser = BlockParser()
    parser.feed("```python\nx\n```\n \n")
    assert (True, False) == (parser.closed, parser.overrun)
    parser.feed("O")
    assert parser.overrun


def test_another_language_can_be_asked_for() -> None:
    """With a custom identifier, only blocks that carry it are code."""
    assert "x" == parse("```python\ny\n```\n```tool\nx\n```", language="tool")[1]
    assert "x" == parse("```PY\nx\n```", language="Python")[1]


def test_the_longest_info_string_opens_a_block_before_any_line_break() -> None:
    """It is delayed with its carriage return, although that is one character more."""
    for end in ("\n", "\r\n"):
        answer = f"```python {'i' * 193}{end}x{end}```"
        assert ("", "x", True) == parse(*answer) == parse(answer)


_PIECES = ["```", "~~~", "`", "``", "````", "python", "py", "json", " ", "   ", "\n", "\r\n", "\r", "x = 1", "'", '"',
           "'''", '"""', "\\", "# ", "text", "{", "i" * 199, "\t", "é"]  # fmt: skip
_ANSWERS = st.lists(st.sampled_from(_PIECES), max_size=25).map("".join) | st.text(max_size=60)


@settings(max_examples=400)
@given(answer=_ANSWERS, data=st.data(), cut_off=st.booleans())
def test_the_result_does_not_depend_on_the_chunking(answer: str, data: st.DataObject, cut_off: bool) -> None:
    """For every answer and every way to cut it, text and code equal those of the whole."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=8)))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    whole = parse(answer, cut_off=cut_off)
    assert whole == parse(*pieces, cut_off=cut_off)
    assert whole == parse(*answer, cut_off=cut_off)


@settings(max_examples=200)
@given(answer=_ANSWERS)
def test_nothing_is_lost_without_a_block(answer: str) -> None:
    """An answer without code is shown character by character, unchanged."""
    shown, code, _ = parse(answer)
    assert code is not None or answer == shown
