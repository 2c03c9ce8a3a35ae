"""A recording is written completely or not at all, and read back unchanged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.models.messages import Message, ModelTurn, TokenUsage
from cenote.models.replay import RecordedTurn, prompt_hash, read_recording, write_recording
from cenote_security.errors import UsageError

TEXT = st.text(st.characters(), max_size=20)  # including lone surrogates and line separators
MESSAGES = st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant"]), TEXT), max_size=3)
TURNS = st.builds(
    RecordedTurn,
    model_id=TEXT,
    messages=MESSAGES.map(tuple),
    turn=st.builds(ModelTurn, TEXT, st.none() | TEXT, st.builds(TokenUsage, st.integers(0, 9))),
)
TURN = RecordedTurn(
    model_id="m",
    messages=(Message.user("6 * 7?"),),
    turn=ModelTurn("42", "stop", TokenUsage(9, 4, 1)),
)


@given(turns=st.lists(TURNS, max_size=4))
@settings(deadline=None)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, turns: list[RecordedTurn]
) -> None:
    """One line a turn, for any texts."""
    path = tmp_path_factory.mktemp("recording") / "r.jsonl"
    write_recording(path, turns)
    assert tuple(turns) == read_recording(path)
    assert len(turns) == path.read_bytes().count(b"\n")
    assert [path] == list(path.parent.iterdir())


@given(one=MESSAGES, other=MESSAGES)
@settings(deadline=None)
def test_hashes_tell_prompts_apart(one: list[Message], other: list[Message]) -> None:
    """Equal for equal prompts only."""
    assert (one == other) is (prompt_hash(one) == prompt_hash(other))


def test_a_failed_write_leaves_the_old_recording(tmp_path: Path) -> None:
    """No part of the new one remains."""
    path = tmp_path / "r.jsonl"
    write_recording(path, [TURN])
    before = path.read_bytes()
    broken = RecordedTurn(model_id=object(), messages=(), turn=TURN.turn)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        write_recording(path, [TURN, broken])
    assert before == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line",
    [
        "not JSON",
        "[]",
        "3",
        "{}",
        json.dumps({"model_id": "m", "prompt_hash": "", "messages": [{"role": "tool", "content": ""}]}),
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_turn_is_named(tmp_path: Path, line: str) -> None:
    """With its number."""
    path = tmp_path / "r.jsonl"
    write_recording(path, [TURN])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(UsageError, match="line 2"):
        read_recording(path)


@pytest.mark.parametrize(
    "edit", [("6 * 7?", "6 * 8?"), ('"text": "42"', '"text": 42'), ('"prompt": 9', '"prompt": -9')]
)
def test_an_edited_line_is_refused(tmp_path: Path, edit: tuple[str, str]) -> None:
    """A prompt that was edited would never match; texts are not numbers either."""
    path = tmp_path / "r.jsonl"
    write_recording(path, [TURN])
    path.write_text(path.read_text().replace(*edit))
    with pytest.raises(UsageError, match="line 1"):
        read_recording(path)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    """Missing, or not a text."""
    path = tmp_path / "r.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"r\.jsonl"):
        read_recording(path)


def test_a_device_stays_one(tmp_path: Path) -> None:
    """A pipe stands for it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_recording(path, [TURN])
        assert os.read(reading, 65_536).count(b"\n") == 1
    finally:
        os.close(reading)
    assert path.is_fifo()
