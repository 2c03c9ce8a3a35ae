"""What a model is shown of a cell's run."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote.agent.prompt.observation import cut, error_line, observe, shown
from cenote_worker.execution.results import ErrorInfo, ExecutionResult, Span


def seen(**fields: object) -> str:
    return observe(ExecutionResult(success=True, **fields), "").output


def test_parts_come_in_the_order_of_a_notebook() -> None:
    """Printed, displayed, returned, warned."""
    assert "printed\nshown\n7\nstderr: careful" == seen(
        stdout="printed\n", outputs=({"text/plain": "shown"},), value="7", stderr="careful\n"
    )


def test_nothing_is_nothing() -> None:
    """Blank output counts as none."""
    assert "" == seen(stdout="\n \n")


def test_leading_blanks_of_output_stay() -> None:
    """The first line of a table may begin with blanks for alignment."""
    assert "   a  b\n0  1  2" == seen(stdout="   a  b\n0  1  2\n")


PROGRESS = "".join(f"\repoch {i}: loss {1 / (i + 1):.3f}" for i in range(600))
BAR = "".join(f"\r{i:>3}%|{'#' * (i // 10)}" for i in range(101))


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (f"{PROGRESS}\naccuracy 0.97\n{BAR}\n", f"epoch 599: loss 0.002\naccuracy 0.97\n100%|{'#' * 10}"),
        ("loading...\rdone\n", "doneing..."),  # as a terminal shows it
        ("loading...\r\x1b[Kdone\n", "done"),
        ("long line\r\x1b[2Kx", "x"),
        ("abc\x1b[1Kd", "   d"),
        ("one\r\ntwo\r\n", "one\ntwo"),
        ("12%\b\b\b34%", "34%"),
        ("\b\bx", "x"),
        ("a: 0%\nb: 0%\x1b[A\ra: 9%\n\rb: 9%\n", "a: 9%\nb: 9%"),  # two bars, one above the other
        ("top\x1b[9A\rT", "Top"),
        ("\x1b[1;31mred\x1b[0m \x1b[?25lx\x1b[?25h", "red x"),
        ("\x1b]0;title\x07\0 \u202e", "\\x1b]0;title\\x07\\x00 \\u202e"),
        ("\x1b[2Jx", "\\x1b[2Jx"),
    ],
)
def test_a_model_reads_what_a_terminal_would_show(printed: str, expected: str) -> None:
    """Lines that overwrite themselves appear in final form; active sequences are escaped; colours are removed."""
    assert expected == seen(stdout=printed)
    assert expected == seen(value=printed)
    assert f"stderr: {expected.strip()}" == seen(stderr=printed)
    assert expected == seen(outputs=({"text/plain": printed},))


@given(st.text(st.sampled_from("ab\n\r\b\x1b[AK12m"), max_size=60))
def test_any_movements(printed: str) -> None:
    """No cursor movement remains, and text without any is unchanged."""
    assert set() == set(shown(printed)) & set("\r\b\x1b")
    plain = printed.translate(dict.fromkeys(map(ord, "\r\b\x1b")))
    assert plain == shown(plain)


def test_a_line_that_overwrites_itself_without_end_costs_no_more_than_it_is_long() -> None:
    """Otherwise each step back over a long line would copy it."""
    assert "a" * 199_999 + "b" == shown("a" * 200_000 + "\bb" * 200_000)


def test_an_error_cannot_act_either() -> None:
    error = ErrorInfo(type="E\x1b[0m", message="\x1b]0;t\x07 \u202e\0")
    assert "E: \\x1b]0;t\\x07 \\u202e\\x00" == error_line(error, "x")


def test_images_are_noted_with_their_size() -> None:
    """A model cannot read a PNG as text."""
    assert "[image/png 14 kB]" == seen(outputs=({"text/plain": "<Figure>", "image/png": b"x" * 14_200},))
    assert "[image/svg+xml 5 B]" == seen(outputs=({"image/svg+xml": "<svg>"},))


def test_text_is_preferred_to_markup() -> None:
    """HTML only if there is nothing else, and then as a note."""
    assert "a b" == seen(outputs=({"text/html": "<table>", "text/plain": "a b"},))
    assert "[text/html 7 B]" == seen(outputs=({"text/html": "<table>"},))
    assert "# hi" == seen(outputs=({"text/markdown": "# hi"},))


def test_the_value_is_not_shown_twice() -> None:
    """The rich form of the last expression is an output as well."""
    assert "   a\n0  1" == seen(
        outputs=({"text/plain": "   a\n0  1", "text/html": "<t>"},), value="   a\n0  1"
    )


def test_output_that_the_runtime_cut_says_so() -> None:
    """Output that was never stored cannot be read later."""
    assert "x\n(the middle was dropped: more than the runtime keeps)" == seen(stdout="x", truncated=True)


def test_an_error_is_one_line_with_the_failing_line() -> None:
    """The message in one line, and the place."""
    error = ErrorInfo(
        type="ValidationError",
        message="1 error\n  field\n    required",
        span=Span(line=2, column=4, end_line=2, end_column=9),
    )
    assert "ValidationError: 1 error field required [line 2: y = f(x)]" == error_line(
        error, "x = 1\n    y = f(x)"
    )


def test_the_type_is_not_said_twice() -> None:
    """Some messages begin with the type, some errors have no message."""
    assert "KeyError: 'a'" == error_line(ErrorInfo(type="KeyError", message="KeyError: 'a'"), "")
    assert "KeyboardInterrupt" == error_line(ErrorInfo(type="KeyboardInterrupt", message=""), "")


def test_a_span_outside_of_the_code_is_no_line() -> None:
    """A runtime's figures are not trusted to be in range."""
    error = ErrorInfo(type="E", message="m", span=Span(line=9, column=0, end_line=9, end_column=1))
    assert "E: m" == error_line(error, "x")


def test_long_errors_keep_both_ends() -> None:
    """The start says what happened, the end has the hints."""
    line = error_line(ErrorInfo(type="E", message="a" * 5000 + " nearest: b"), "z" * 500)
    assert (True, True, True) == (line.startswith("E: aaa"), line.endswith("nearest: b"), len(line) < 1600)


def test_the_cut_falls_between_lines() -> None:
    """Rows are shown whole if that costs little."""
    text = "\n".join(f"row {i:04}" for i in range(1000))
    shown = cut(text, 200, "read_output(1)")
    assert all(re.fullmatch(r"row \d{4}|\[\.\.\. .*\]", line) for line in shown.split("\n"))


def test_the_cut_falls_between_records() -> None:
    """Indented lines belong to the previous line."""
    text = "\n".join(f"record {i}\n  a: {i}\n  b: {i}" for i in range(100))
    head, _, tail = re.split(r"\n(\[\.\.\. .*\])\n", cut(text, 300, "read_output(1)"))
    assert re.fullmatch(r"  b: \d+", head.split("\n")[-1])
    assert re.fullmatch(r"record \d+", tail.split("\n")[0])


@given(st.text(alphabet="ab\n", min_size=201, max_size=2000))
def test_head_gap_and_tail_are_the_whole(text: str) -> None:
    """The expression in the gap gives exactly the omitted part."""
    shown = cut(text, 200, "H")
    match = re.search(r"\n\[\.\.\. (\d+) characters left out; H\[(\d+):(\d+)\] reads them\]\n", shown)
    assert match is not None
    count, start, end = map(int, match.groups())
    assert end - start == count
    assert text == shown[: match.start()] + text[start:end] + shown[match.end() :]
    assert len(shown) <= 200 + 80


def test_both_streams_are_shown_in_the_order_in_which_they_were_written() -> None:
    """As on a terminal, so that a warning is next to its cause."""
    mixed = {"stdout": "one\ntwo\nthree\n", "stderr": "careful\nagain\n", "value": "7"}
    assert "one\nstderr: careful\ntwo\nthree\nstderr: again\n7" == seen(
        **mixed, printed_in_turns=(4, 8, 10, 6)
    )
    assert "stderr: careful\nagain\none\ntwo\nthree\n7" == seen(**mixed, printed_in_turns=(0, 14, 14))
    assert "one\ntwo\nthree\n7\nstderr: careful\nagain" == seen(**mixed)


def test_an_order_that_does_not_fit_what_was_printed_is_none() -> None:
    """Nothing is lost or repeated."""
    result = ExecutionResult(success=True, stdout="one\n", stderr="careful\n", printed_in_turns=(4, 5, 6))
    assert (("stdout", "one\n"), ("stderr", "careful\n")) == result.printed


def test_a_line_that_is_drawn_again_between_others_is_shown_once() -> None:
    """Progress bars are written to stderr while a loop prints."""
    text = seen(stdout="1\n2\n", stderr="\r50%\r100%\n", printed_in_turns=(0, 4, 2, 6, 2))
    assert "1\n2\nstderr: 100%" == text
