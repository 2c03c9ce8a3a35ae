"""Head and tail: the first and the last output, in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.supervisor.running_request import HeadAndTail

LIMIT = 100


@given(st.lists(st.text(max_size=30), max_size=60))
def test_short_output_is_kept_whole_long_output_at_both_ends(pieces: list[str]) -> None:
    """Up to the limit nothing is lost; beyond it the first and the last halves remain, however it was split."""
    collected = HeadAndTail(LIMIT)
    for piece in pieces:
        collected.add(piece)
    whole = "".join(pieces)
    text = collected.text()
    if len(whole) <= LIMIT:
        assert whole == text
        assert not collected.truncated
    else:
        assert whole[:50] == text[:50]
        assert whole[-50:] == text[-50:]
        assert f"[... {len(whole) - LIMIT} characters left out ...]" in text
        assert collected.truncated


def test_a_flood_of_short_lines_costs_little() -> None:
    """Ten million characters in lines of two leave no more objects than the limit allows."""
    collected = HeadAndTail(10_000)
    for _ in range(200_000):
        collected.add("x\n" * 25)
    assert len(collected._tail) <= 2
    assert 200_000 * 50 - 10_000 == int(collected.text().split("[... ")[1].split()[0])
