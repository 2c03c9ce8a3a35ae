"""A recorded conversation: one JSON object a line, one line a turn."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cenote.models.messages import Message
from cenote.models.turn import ModelTurn
from cenote.models.usage import TokenUsage
from cenote_security.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class RecordedTurn:
    """What was asked of which model, and what it answered."""

    model_id: str
    messages: tuple[Message, ...]
    turn: ModelTurn

    @property
    def prompt_hash(self) -> str:
        return prompt_hash(self.messages)


def prompt_hash(messages: Sequence[Message]) -> str:
    """SHA-256 over roles and contents; equal prompts, and no others, have equal hashes."""
    canonical = json.dumps([[m.role, m.content] for m in messages], separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def read_recording(path: Path) -> tuple[RecordedTurn, ...]:
    """The turns of a recording.

    Raises UsageError, with the line, for a file that is missing, no recording, or edited in a prompt.
    """
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a readable recording: {error}") from None
    return tuple(_read_line(path, number, line) for number, line in enumerate(lines, 1) if line.strip())


def write_recording(path: Path, turns: Sequence[RecordedTurn]) -> None:
    """Writes all turns. The file holds either what it held before or all of them, never a part."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(unfinished, "w", encoding="utf-8") as file:
            file.writelines(f"{_line(turn)}\n" for turn in turns)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _line(recorded: RecordedTurn) -> str:
    return json.dumps(
        {
            "model_id": recorded.model_id,
            "prompt_hash": recorded.prompt_hash,
            "messages": [asdict(message) for message in recorded.messages],
            "text": recorded.turn.text,
            "finish_reason": recorded.turn.finish_reason,
            "usage": asdict(recorded.turn.usage),
        }
    )


def _read_line(path: Path, number: int, line: str) -> RecordedTurn:
    try:
        entry = json.loads(line)
        recorded = _recorded_turn(entry)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(f"{path}, line {number}, is not a recorded turn: {error!r}") from None
    if recorded.prompt_hash != entry["prompt_hash"]:
        raise UsageError(
            f"{path}, line {number}: the messages are not those that were recorded; record again"
        )
    return recorded


def _recorded_turn(entry: Any) -> RecordedTurn:  # Any: JSON, checked by the values that are built from it
    if not isinstance(entry["text"], str):
        raise UsageError("the text of a turn is a string")
    return RecordedTurn(
        model_id=entry["model_id"],
        messages=tuple(Message(**message) for message in entry["messages"]),
        turn=ModelTurn(entry["text"], entry["finish_reason"], TokenUsage(**entry["usage"])),
    )
