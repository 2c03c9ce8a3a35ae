"""Events are the same for any chunking and any line ends."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cenote.models.errors import ModelResponseError
from cenote.models.sse import EventParser

LINE = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8)
EVENTS = st.lists(st.lists(LINE, min_size=1, max_size=3).map("\n".join), max_size=4)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def encode(events: list[str], end: bytes) -> bytes:
    lines = [[f"data: {line}".encode() for line in event.split("\n")] for event in events]
    return b"".join(end.join(event) + end + end for event in lines)


def parse(*parts: bytes) -> list[str]:
    parser = EventParser()
    return [event for part in parts for event in parser.feed(part)] + parser.finish()


@given(events=EVENTS, end=ENDS)
@settings(deadline=None, max_examples=100)
@example(events=["€ ü\nsecond", "🦇"], end=b"\r\n")
def test_cutting_at_every_byte_changes_nothing(events: list[str], end: bytes) -> None:
    """Multi-byte characters, two-byte line ends, and everything else may be split."""
    data = encode(events, end)
    assert events == parse(data)
    assert events == parse(*[data[i : i + 1] for i in range(len(data))])
    for cut in range(len(data)):
        assert events == parse(data[:cut], data[cut:])


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b": keep-alive\n\ndata: a\n\n", ["a"]),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", ["a"]),
        (b"data:a\n\ndata:  b\n\n", ["a", " b"]),
        (b"data\n\n", [""]),
        (b"dataset: a\n\n", []),
        (b"\n\n\ndata: a\n\n\n", ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"data: [DONE]\n", ["[DONE]"]),
        (b"data: a\n\ndata: cut o", ["a"]),
        (b"data: a\ndata: cut o", ["a"]),
        (b"", []),
    ],
)
def test_what_counts_as_an_event(data: bytes, events: list[str]) -> None:
    """Comments and other fields are skipped; the end of the stream ends an event, but completes no line."""
    assert events == parse(data)


def test_a_line_may_be_as_long_as_the_limit_and_no_longer() -> None:
    """A server that never ends its line costs no more memory than the limit."""
    assert ["xxxx"] == EventParser(max_line=10).feed(b"data: xxxx\n\n")
    with pytest.raises(ModelResponseError, match="line of more than 10 bytes"):
        EventParser(max_line=10).feed(b"data: xxxxx\n\n")


def test_the_limit_holds_while_the_line_is_unfinished() -> None:
    """The end of the line is not waited for."""
    parser = EventParser(max_line=10)
    assert [] == [event for _ in range(10) for event in parser.feed(b"x")]
    with pytest.raises(ModelResponseError):
        parser.feed(b"x")


@pytest.mark.parametrize(("line", "fit"), [(b"data: 123\n", 25), (b"data:\n", 100)])
def test_an_event_of_endless_lines_is_refused(line: bytes, fit: int) -> None:
    """Each line counts with its line break: empty lines need memory, too."""
    parser = EventParser(max_event=100)
    parser.feed(line * fit)
    with pytest.raises(ModelResponseError, match="event of more than 100 bytes"):
        parser.feed(line)


@given(st.lists(st.binary(max_size=20), max_size=20))
@settings(deadline=None, max_examples=100)
def test_no_bytes_break_the_parser(parts: list[bytes]) -> None:
    """For any bytes, events are text, and the same as in one piece."""
    assert parse(b"".join(parts)) == parse(*parts)
