"""A model that answers by a script: for tests, demos and examples, without a network."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from cenote.models.base import Model, estimate_usage
from cenote.models.errors import ModelInterruptedError, ScriptExhaustedError
from cenote.models.messages import Message, ModelChunk, ModelTurn, check_chunk_size, cut, pieces
from cenote_security.errors import UsageError

Line = str | ModelTurn | Exception | Callable[[Sequence[Message]], str | ModelTurn]
"""One turn of a script: its text, the whole turn, an error to raise, or a function of the prompt.

A ModelInterruptedError is raised after its `partial` text was delivered."""


class ScriptedModel(Model):
    """Answers with the given turns in order, in pieces of `chunk_size` characters.

    Tokens are counted as for `model_id`. A turn more than there are is a ScriptExhaustedError.
    """

    def __init__(self, script: Iterable[Line], *, chunk_size: int = 7, model_id: str = "scripted") -> None:
        if isinstance(script, str):
            raise UsageError("a script is a list of turns; put the text in brackets: ScriptedModel([text])")
        if not isinstance(script, Iterable):
            raise UsageError(f"a script is a list of turns, not {script!r:.100}")
        check_chunk_size(chunk_size)
        self.model_id = model_id
        self._script = tuple(script)
        for line in self._script:
            if not isinstance(line, str | ModelTurn | Exception) and not callable(line):
                raise UsageError(f"a turn is a text, a ModelTurn, an error or a function, not {line!r:.100}")
        self._chunk_size = chunk_size
        self._prompts: list[tuple[Message, ...]] = []

    def __repr__(self) -> str:
        return f"ScriptedModel({len(self._script)} turns, {len(self._prompts)} used)"

    @property
    def prompts(self) -> tuple[tuple[Message, ...], ...]:
        """The messages of each call so far, oldest first."""
        return tuple(self._prompts)

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        turn = self._next(tuple(messages))
        if isinstance(turn, ModelInterruptedError):
            for piece in pieces(turn.partial, self._chunk_size):
                yield piece
        if isinstance(turn, Exception):
            raise turn
        for piece in cut(turn, self._chunk_size):
            yield piece
        yield turn

    def _next(self, messages: tuple[Message, ...]) -> ModelTurn | Exception:
        used = len(self._prompts)
        if used >= len(self._script):
            raise ScriptExhaustedError(
                f"the script has {len(self._script)} turns and turn {used + 1} was asked for; "
                f"the prompt ends with {messages[-1].content[-200:] if messages else ''!r}"
            )
        self._prompts.append(messages)
        line = self._script[used]
        if callable(line):
            line = line(messages)
        if isinstance(line, str):
            return ModelTurn(line, "stop", estimate_usage(messages, line, self.model_id))
        return line
