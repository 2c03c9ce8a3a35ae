"""One turn of the model: an answer that can be acted on, however many calls that takes."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.agent import prompts
from cenote.agent.block_parser import BlockParser
from cenote.agent.compaction import Compaction
from cenote.agent.conversation import Conversation, Counter
from cenote.agent.events import Event, EventType
from cenote.agent.flow import (
    Emit,
    Flow,
    ModelFailed,
    NextChunk,
    StartTurn,
    StopTurn,
    TextDelta,
    TurnEnded,
    TurnStopped,
    ask,
)
from cenote.agent.history import Entry, Kind
from cenote.agent.ledger import Ledger
from cenote.models.errors import ContextLengthError, ModelInterruptedError
from cenote.models.messages import Message
from cenote.models.usage import TokenUsage

MAX_RETRIES = 2
"""Further calls within one turn for each kind of mishap: cut off, empty, connection lost, context too long."""

_CUT_OFF = frozenset({"length", "max_tokens"})

_KEPT_OF_A_CUT_BLOCK = 400
"""Characters of a block that was cut off which stay in the conversation; the model writes it anew anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What the model answered.

    text: the answer up to the end of its block. code: the block, None for an answer in text. is_patch: the block is
    a patch of earlier steps.
    complete: False when the answer was cut off or empty, and asking again did not help.
    """

    text: str
    code: str | None = None
    is_patch: bool = False
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    text: str
    code: str | None
    is_patch: bool
    cut_off: bool

    @property
    def is_usable(self) -> bool:
        return not self.cut_off and (self.code is not None or bool(self.text.strip()))


class TurnTaker:
    """Calls the model and recovers from what can go wrong with an answer. languages: of blocks, code's first."""

    def __init__(
        self, conversation: Conversation, compaction: Compaction, counter: Counter, *languages: str
    ) -> None:
        self._conversation = conversation
        self._compaction = compaction
        self._counter = counter
        self._languages = languages

    def take(self, ledger: Ledger) -> Flow[Turn]:
        """One turn. Raises what the model raised, where that cannot be mended here."""
        said = ""
        asides: list[Entry] = []
        try:
            for _ in range(MAX_RETRIES + 1):
                answer = yield from self._answer(ledger)
                if answer.code is None or not answer.cut_off:
                    said += answer.text
                if answer.is_usable:
                    return Turn(text=said, code=answer.code, is_patch=answer.is_patch)
                asides += _asked_again(answer)
                self._conversation.add(*asides[-2:])
            return Turn(text=said, complete=False)
        finally:
            # The turn as a whole is what the conversation keeps, not how it was pieced together.
            self._conversation.discard(asides)

    def _answer(self, ledger: Ledger) -> Flow[_Answer]:
        """One whole answer; calls again where the connection was lost or the conversation was too long."""
        interruptions = refusals = 0
        while True:
            try:
                return (yield from self._call(self._conversation.messages(), ledger))
            except ModelInterruptedError:
                interruptions += 1
                if interruptions > MAX_RETRIES:
                    raise
            except ContextLengthError:
                refusals += 1
                if refusals > MAX_RETRIES or not (yield from self._compaction.after_refusal(ledger)):
                    raise

    def _call(self, messages: tuple[Message, ...], ledger: Ledger) -> Flow[_Answer]:
        parser = BlockParser(*self._languages)
        yield StartTurn(messages)
        while not parser.overrun:
            happening = yield NextChunk()
            match happening:
                case TextDelta(text):
                    yield from _show(parser.feed(text))
                case TurnEnded(reason, usage, seconds):
                    ledger.book_call(usage, seconds)
                    # A filter that stopped a text would stop it again; half a block must not run.
                    filtered = reason == "content_filter" and parser.code is not None
                    return (yield from _finish(parser, cut_off=filtered or reason in _CUT_OFF))
                case ModelFailed(error, seconds):
                    ledger.book_call(self._estimate(messages, parser.reasoning + parser.answer), seconds)
                    if not parser.closed:
                        raise error
                    # What was lost is the end of an answer that already says what to do.
                    return (yield from _finish(parser, cut_off=False))
                case _:
                    raise TypeError(f"NextChunk is not answered by {type(happening).__name__}")
        # Models that write on after their block make up its output. Stopping them costs the server's own figures.
        stopped = yield from ask(StopTurn(), TurnStopped)
        ledger.book_call(self._counter.estimate(messages, parser.reasoning + parser.answer), stopped.seconds)
        return (yield from _finish(parser, cut_off=False))

    def _estimate(self, messages: tuple[Message, ...], answer: str) -> TokenUsage:
        """Usage of a call that failed: none if it was refused before a word was written."""
        return self._counter.estimate(messages, answer) if answer else TokenUsage()


def _asked_again(answer: _Answer) -> tuple[Entry, Entry]:
    """What was said, and why that does not do."""
    text, note = answer.text, prompts.TEXT_CUT_OFF
    if answer.code is not None:
        text, note = f"{text[:_KEPT_OF_A_CUT_BLOCK]}\n[cut off]", prompts.CODE_CUT_OFF
    elif not text.strip():
        text, note = prompts.NO_WORDS, prompts.EMPTY_ANSWER
    return Entry(kind=Kind.ANSWER, text=text), Entry(kind=Kind.NOTE, text=note)


def _finish(parser: BlockParser, *, cut_off: bool) -> Flow[_Answer]:
    yield from _show(parser.finish(cut_off=cut_off))
    incomplete = cut_off and not parser.closed
    if parser.code is not None and not incomplete:
        yield Emit(Event(EventType.PATCH if parser.other else EventType.CODE, parser.code))
    return _Answer(text=parser.answer, code=parser.code, is_patch=bool(parser.other), cut_off=incomplete)


def _show(text: str) -> Flow[None]:
    if text:
        yield Emit(Event(EventType.TEXT, text))
