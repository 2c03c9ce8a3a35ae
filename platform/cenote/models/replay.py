"""Records what a model answers, and answers from the recording: one JSON object a line, one line a turn."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from cenote.models.base import Model, ModelLimits, ReasoningModel, closing, reasoned
from cenote.models.errors import ReplayMismatchError, ScriptExhaustedError
from cenote.models.messages import (
    Message,
    ModelChunk,
    ModelTurn,
    ReasonedChunk,
    TokenUsage,
    check_chunk_size,
    cut,
)
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
    """Writes all turns. A file holds either what it held before or all of them, never a part; what is there and no
    file, such as a device, is written to.
    """
    if path.exists() and not path.is_file():
        with open(path, "w", encoding="utf-8") as device:
            device.writelines(f"{_line(turn)}\n" for turn in turns)
        return
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


MAX_DIFF = 4_000
"""Characters of the difference between prompts that an error shows."""


class ReplayModel(Model):
    """Answers from a recording, and to the recorded prompts only.

    A turn answers once, to a prompt equal to its own; several agents may ask in any order. Another prompt
    raises ReplayMismatchError with the difference to the next unused turn, one too many ScriptExhaustedError.
    A path that holds no recording is a UsageError.
    """

    def __init__(self, path: str | PathLike[str], *, chunk_size: int = 7) -> None:
        check_chunk_size(chunk_size)
        if not isinstance(path, str | PathLike):
            raise UsageError(f"a recording is a file; give its path, not {path!r:.100}")
        self._path = Path(path)
        turns = read_recording(self._path)
        self._count = len(turns)
        self._unused = dict(enumerate(turns, 1))  # by number
        self._chunk_size = chunk_size
        self.model_id = turns[0].model_id if turns else "replay"

    @classmethod
    def record(cls, path: str | PathLike[str], model: Model) -> RecordingModel:
        """`model`, with every finished turn written to `path`, from which a ReplayModel answers later.

        The first turn replaces a recording that is there already.
        """
        return RecordingModel(Path(path), model)

    def __repr__(self) -> str:
        return (
            f"ReplayModel({str(self._path)!r}, {self._count - len(self._unused)} of {self._count} turns used)"
        )

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        turn = self._take(tuple(messages))
        for piece in cut(turn, self._chunk_size):
            yield piece
        yield turn

    def _take(self, messages: tuple[Message, ...]) -> ModelTurn:
        if not self._unused:
            raise ScriptExhaustedError(f"all {self._count} turns of the recording {self._path} are used")
        asked = prompt_hash(messages)
        for number, recorded in self._unused.items():
            if recorded.prompt_hash == asked:
                return self._unused.pop(number).turn
        number, expected = next(iter(self._unused.items()))
        raise ReplayMismatchError(
            f"the prompt is not the one recorded for turn {number} of {self._count} in {self._path}; "
            f"record again if the change is meant\n{_difference(expected.messages, messages)}"
        )


class RecordingModel(ReasoningModel):
    """Another model, whose finished turns are written down. Its credentials are cut out of what is written.

    Turns that fail or are closed before their end are not recorded.
    """

    def __init__(self, path: Path, model: Model) -> None:
        if not path.parent.is_dir():
            raise UsageError(f"the folder of the recording does not exist: {path.parent}")
        self.model_id = model.model_id
        self._path = path
        self._model = model
        self._turns: list[RecordedTurn] = []

    def __repr__(self) -> str:
        return f"RecordingModel({str(self._path)!r}, {self._model!r})"

    async def limits(self) -> ModelLimits:
        return await self._model.limits()

    def redact(self, text: str) -> str:
        return self._model.redact(text)

    async def stream_with_reasoning(self, messages: Sequence[Message]) -> AsyncGenerator[ReasonedChunk, None]:
        sent = tuple(messages)
        async with closing(reasoned(self._model, sent)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, ModelTurn):
                    self._keep(sent, chunk)
                yield chunk

    def _keep(self, messages: tuple[Message, ...], turn: ModelTurn) -> None:
        recorded = RecordedTurn(
            model_id=self.model_id,
            messages=tuple(Message(m.role, self.redact(m.content)) for m in messages),
            turn=ModelTurn(self.redact(turn.text), turn.finish_reason, turn.usage),
        )
        self._turns.append(recorded)
        write_recording(self._path, self._turns)


def _difference(recorded: Sequence[Message], asked: Sequence[Message]) -> str:
    """A unified diff of two prompts, bounded."""
    lines = difflib.unified_diff(_lines(recorded), _lines(asked), "recorded", "asked", lineterm="", n=2)
    text = "\n".join(lines)
    return text if len(text) <= MAX_DIFF else f"{text[:MAX_DIFF]}\n… (the difference goes on)"


def _lines(messages: Sequence[Message]) -> list[str]:
    return [line for m in messages for line in (f"[{m.role}]", *m.content.split("\n"))]
