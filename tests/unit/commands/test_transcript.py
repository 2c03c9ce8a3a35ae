"""Tests of `cenote.terminal.transcript`."""

from __future__ import annotations

import io

from cenote.agent import Event, EventType
from cenote.terminal.screen import Screen
from cenote.terminal.transcript import BLOCKS, TranscriptPrinter


def printed(*events: Event, name: str = "") -> list[str]:
    out = io.StringIO()
    transcript = TranscriptPrinter(Screen(out, io.StringIO()), name)
    for event in events:
        transcript.show(event)
    return out.getvalue().splitlines()


def test_a_turn_with_code() -> None:
    """The model's text is shown as it arrives; code and output have headings."""
    lines = printed(
        Event(EventType.TEXT, "\n\nFirst "),
        Event(EventType.TEXT, "a look.\n"),
        Event(EventType.CODE, "print(1)\n"),
        Event(EventType.EXECUTION_OUTPUT, "1\n"),
    )
    assert ["", "First a look.", "--- code", "print(1)", "--- output", "1"] == lines


def test_an_answer_that_was_streamed_is_not_repeated() -> None:
    """A final text was printed while it arrived; an answer from `reply` was not."""
    text = [Event(EventType.TEXT, "All "), Event(EventType.TEXT, "done.")]
    assert ["", "All done."] == printed(*text, Event(EventType.FINAL_RESPONSE, "All done."))
    assert ["--- answer", "All done."] == printed(Event(EventType.FINAL_RESPONSE, "All done."))


def test_agents_are_told_apart() -> None:
    """The name, if any, is the heading of the agent's text and actions."""
    lines = printed(Event(EventType.TEXT, "Hm."), Event(EventType.CODE, "1"), name="cleaner")
    assert ["", "--- cleaner", "Hm.", "--- cleaner: code", "1"] == lines


def test_every_kind_of_event_is_shown() -> None:
    """A kind that the transcript does not know would not be shown."""
    of_others = {
        "text",
        "code_delta",
        "thinking",
        "stopped",
    }  # pieces, and the text for an end without an answer
    assert {kind.value for kind in EventType} - of_others == set(BLOCKS)
