"""Names of locations in sentences."""

from __future__ import annotations

from cenote.harness.planning.reuse import why_again
from cenote.harness.planning.state_contents import Contents
from cenote.harness.record.location_text import MAX_LISTED, MAX_SPOKEN, listed, shown
from cenote_worker.execution.trace import StepTrace, Version, name
from cenote_worker.history.step import StepRecord


def test_a_name_is_on_one_line_and_short() -> None:
    """At the limit it is whole; one character more is cut."""
    assert "a\\nb\\x1b" == shown("a\nb\x1b")
    assert ["x" * MAX_SPOKEN, MAX_SPOKEN] == [shown("x" * MAX_SPOKEN), len(shown("x" * (MAX_SPOKEN + 1)))]


def test_many_are_counted() -> None:
    """At the limit all are listed; one more is counted."""
    names = [f"v{number}" for number in range(MAX_LISTED + 1)]
    assert ", ".join(names[:-1]) == listed(names[:-1])
    assert listed(names).endswith("v19 and 1 more")


def test_no_reason_is_as_long_as_a_jail_likes() -> None:
    """A jail reports the sharing groups: thousands of names of a thousand characters."""
    names = [name(f"{number:01000}\n") for number in range(1_000)]
    entangled = Contents()
    entangled.fold(1, StepTrace(writes=dict.fromkeys(names, Version("1")), groups=(frozenset(names),)))
    alone = StepRecord(number=2, trace=StepTrace(writes={names[0]: Version("2")}))
    reason = why_again(alone, Contents(), entangled)
    assert "and 979 more shares objects" in reason
    assert len(reason) < 6_000
    assert reason.isprintable()
