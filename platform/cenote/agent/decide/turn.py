"""One turn of the model: an answer that can be acted on, however many calls that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cenote.agent.decide.compaction import Compaction
from cenote.agent.decide.limits import AnswerMeter, Bounds, RunLedger, RunStoppedError
from cenote.agent.parse.block_parser import ALIASES, BlockParser
from cenote.agent.parse.intended_code import intent_of, said_in
from cenote.agent.parse.source import source_of
from cenote.agent.prompt import prompts
from cenote.agent.vocabulary.commands import (
    Emit,
    Flow,
    ModelFailed,
    NextChunk,
    StartTurn,
    StopTurn,
    TextDelta,
    Thought,
    TurnEnded,
    TurnStopped,
    ask,
)
from cenote.agent.vocabulary.conversation import Conversation, ConversationEntry, Counter, Kind
from cenote.agent.vocabulary.events import EventType, news
from cenote.agent.vocabulary.response import StopReason
from cenote.models.errors import ContextLengthError, ModelInterruptedError
from cenote.models.messages import Message, TokenUsage, TurnEnd, ending_of

MAX_RETRIES = 2
"""Further calls within one turn for each mishap: cut off, empty, no block, connection lost, context too long."""

_LOOKAHEAD: Final = 4000
"""Characters that are read after a block, once, to learn whether reasoning comes without its beginning."""

_KEPT_OF_A_CUT_BLOCK = 400
"""Characters of a block that was cut off which stay in the conversation; the model writes it anew anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFlow:
    """What the model answered.

    text: the answer up to the end of its block. code: the block, None for an answer in text. is_patch: the block is
    a patch of earlier steps.
    stop: why there is no whole answer, and asking again did not help or would not; else COMPLETED.
    """

    text: str
    code: str | None = None
    is_patch: bool = False
    stop: StopReason = StopReason.COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """note: why it does not do, for the model; empty where it does. is_part: the next answer goes on with it.

    stop: why it is the last one, whatever it is.
    """

    text: str
    code: str | None = None
    is_patch: bool = False
    note: str = ""
    is_part: bool = False
    stop: StopReason = StopReason.COMPLETED


class TurnTaker:
    """Calls the model and recovers from what can go wrong with an answer. languages: of blocks, code's first."""

    def __init__(
        self,
        conversation: Conversation,
        compaction: Compaction,
        counter: Counter,
        bounds: Bounds,
        *languages: str,
    ) -> None:
        self._conversation = conversation
        self._compaction = compaction
        self._counter = counter
        self._bounds = bounds
        self._languages = languages
        self._reads_on: bool | None = (
            None  # whether reasoning may end after a block; None: that is yet to be seen
        )

    def take(self, ledger: RunLedger) -> Flow[AnswerFlow]:
        """One turn. Raises what the model raised, where that cannot be mended here; RunStoppedError at a limit."""
        said = ""
        asides: list[ConversationEntry] = []
        try:
            for _ in range(MAX_RETRIES + 1):
                answer = yield from self._answer(ledger)
                text = said + answer.text
                if not answer.note:
                    return AnswerFlow(text=text, code=answer.code, is_patch=answer.is_patch, stop=answer.stop)
                said = text if answer.is_part else said
                asides += _asked_again(answer)
                self._conversation.add(*asides[-2:])
            return AnswerFlow(text=said or text, stop=StopReason.INCOMPLETE)
        finally:
            # The turn as a whole is what the conversation keeps, not how it was pieced together.
            self._conversation.discard(asides)

    def _answer(self, ledger: RunLedger) -> Flow[_Answer]:
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

    def _call(self, messages: tuple[Message, ...], ledger: RunLedger) -> Flow[_Answer]:
        parser = BlockParser(*self._languages)
        thoughts: list[str] = []  # reasoning that came apart from the answer
        meter = self._meter(messages, ledger)
        yield StartTurn(messages)
        try:
            while not (self._has_heard_enough(parser) or meter.is_too_long or meter.is_unaffordable):
                happening = yield NextChunk()
                match happening:
                    case TextDelta(text):
                        meter.add(text)
                        yield from _show(parser, parser.feed(text))
                    case Thought(text):
                        meter.add(text)
                        thoughts.append(text)
                        yield Emit(news(EventType.THINKING, text))
                    case TurnEnded(reason, usage, seconds, text):
                        ledger.book_call(usage, seconds)
                        self._reads_on = parser.unopened or bool(self._reads_on)
                        return (yield from self._finish(parser, ending_of(reason), text))
                    case ModelFailed(error, seconds):
                        ledger.book_call(self._estimate(messages, _written(thoughts, parser)), seconds)
                        if not parser.closed:
                            raise error
                        # What was lost is the end of an answer that already says what to do.
                        return (yield from self._finish(parser, TurnEnd.UNKNOWN))
                    case _:
                        raise TypeError(f"NextChunk is not answered by {type(happening).__name__}")
        except RunStoppedError:
            ledger.book_call(self._estimate(messages, _written(thoughts, parser)), 0.0)
            raise
        # Models that write on after their block make up its output. Stopping them costs the server's own figures.
        stopped = yield from ask(StopTurn(), TurnStopped)
        ledger.book_call(self._counter.estimate(messages, _written(thoughts, parser)), stopped.seconds)
        if meter.is_unaffordable and not parser.closed:
            raise RunStoppedError(StopReason.BUDGET_EXHAUSTED)
        self._reads_on = parser.unopened or bool(self._reads_on)
        return (yield from self._finish(parser, TurnEnd.CUT))

    def _meter(self, messages: tuple[Message, ...], ledger: RunLedger) -> AnswerMeter:
        """For the answer to these messages. Raises RunStoppedError where that cannot be afforded any more."""
        bounds, spent = self._bounds, ledger.total
        prompt = self._counter.messages(messages) if bounds.counts_tokens else 0
        bounds.check_call(spent, prompt)
        return AnswerMeter(self._counter.count, bounds.room(spent, prompt), bounds.answer_length)

    def _has_heard_enough(self, parser: BlockParser) -> bool:
        """Whether what follows the block is of no use. It is, where all so far may turn out to be reasoning."""
        if not parser.overrun:
            return False
        if self._reads_on is None:
            return parser.length_after > _LOOKAHEAD
        return not self._reads_on

    def _finish(self, parser: BlockParser, ending: TurnEnd, refusal: str = "") -> Flow[_Answer]:
        is_whole = ending is TurnEnd.WHOLE
        yield from _show(parser, parser.finish(cut_off=not is_whole))
        if ending is TurnEnd.REFUSED:
            if refusal and not parser.answer:
                yield Emit(news(EventType.TEXT, refusal))
            return _Answer(text=refusal or parser.answer, stop=StopReason.REFUSAL)
        if ending is TurnEnd.FILTERED:
            return _Answer(text=parser.answer, stop=StopReason.CONTENT_FILTER)
        if parser.code is None:
            return (yield from self._said(parser.answer, ending))
        if not (is_whole or parser.closed):
            return _Answer(text=parser.answer, code=parser.code, note=prompts.CODE_CUT_OFF)
        code = parser.code if parser.other else source_of(parser.code)
        yield Emit(news(EventType.PATCH if parser.other else EventType.CODE, code))
        return _Answer(text=parser.answer, code=code, is_patch=bool(parser.other))

    def _said(self, answer: str, ending: TurnEnd) -> Flow[_Answer]:
        """An answer without a block: words, or what wants to run in another form."""
        if ending is TurnEnd.CUT:
            return _Answer(text=answer, note=prompts.TEXT_CUT_OFF, is_part=True)
        text = said_in(answer)
        if not text.strip():
            return _Answer(text="", note=prompts.EMPTY_ANSWER)
        if ending is TurnEnd.UNKNOWN:
            return _Answer(text=text, stop=StopReason.INCOMPLETE)
        intent = intent_of(answer)
        if intent is None:
            return _Answer(text=text)
        if intent.code is None or not self._is_python:
            return _Answer(text=answer, note=prompts.NO_BLOCK.format(language=self._languages[0]))
        yield Emit(news(EventType.CODE, intent.code))
        return _Answer(text=answer, code=intent.code)

    @property
    def _is_python(self) -> bool:
        """Whether blocks are in Python as such, and not marked by a word of the user's own."""
        return self._languages[0].lower() in ALIASES

    def _estimate(self, messages: tuple[Message, ...], answer: str) -> TokenUsage:
        """Usage of a call that failed: none if it was refused before a word was written."""
        return self._counter.estimate(messages, answer) if answer else TokenUsage()


def _written(thoughts: list[str], parser: BlockParser) -> str:
    """All that a model has been paid for by now."""
    return "".join(thoughts) + parser.reasoning + parser.answer


def _asked_again(answer: _Answer) -> tuple[ConversationEntry, ConversationEntry]:
    """What was said, and why that does not do."""
    text = answer.text
    if answer.code is not None:
        text = f"{text[:_KEPT_OF_A_CUT_BLOCK]}\n[cut off]"
    elif not text.strip():
        text = prompts.NO_WORDS
    return ConversationEntry(kind=Kind.ANSWER, text=text), ConversationEntry(kind=Kind.NOTE, text=answer.note)


def _show(parser: BlockParser, text: str) -> Flow[None]:
    """What is new of an answer: reasoning, words, lines of its block."""
    if thought := parser.take_reasoning():
        yield Emit(news(EventType.THINKING, thought))
    if text:
        yield Emit(news(EventType.TEXT, text))
    if code := parser.take_code():
        yield Emit(news(EventType.CODE_DELTA, code))
