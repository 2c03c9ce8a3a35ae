"""Keeps a conversation inside the model's context window, and loses as little as possible.

The functions that shorten take entries and return entries; nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from cenote.agent.decide.limits import AnswerMeter, Bounds, RunLedger, RunStoppedError
from cenote.agent.prompt import prompts
from cenote.agent.vocabulary.commands import (
    DescribeRuntime,
    Emit,
    Flow,
    KeepOutput,
    ModelFailed,
    NextChunk,
    OutputKept,
    RuntimeDescription,
    StartTurn,
    StopTurn,
    TextDelta,
    Thought,
    TurnEnded,
    TurnStopped,
    ask,
)
from cenote.agent.vocabulary.conversation import Conversation, ConversationEntry, Counter, Kind, last_task
from cenote.agent.vocabulary.events import EventType, news
from cenote.models.messages import Message, TurnEnd, ending_of
from cenote_security.errors import UsageError

_WORTH_IT = 400
"""Characters from which an output is worth putting away: the pointer costs a fifth of that."""

_NAMES = {Kind.TASK: "User", Kind.ANSWER: "Agent", Kind.CODE: "Agent", Kind.OUTPUT: "Output", Kind.NOTE: "Note",
          Kind.SUMMARY: "Before"}  # fmt: skip


def split(
    entries: tuple[ConversationEntry, ...], keep: int
) -> tuple[tuple[ConversationEntry, ...], tuple[ConversationEntry, ...]]:
    """What is old, and what stays: the current task and the last `keep` steps."""
    start = _start_of_recent(entries, keep)
    task = last_task(entries)
    if not 0 <= task < start:
        return entries[:start], entries[start:]
    return entries[:task] + entries[task + 1 : start], (entries[task], *entries[start:])


def long_outputs(entries: tuple[ConversationEntry, ...], keep: int) -> tuple[ConversationEntry, ...]:
    """Outputs that are worth putting away, those of the last `keep` steps excepted."""
    old = entries[: _start_of_recent(entries, keep)]
    return tuple(entry for entry in old if entry.kind is Kind.OUTPUT and len(entry.text) > _WORTH_IT)


def pointer_entry(entry: ConversationEntry, handle: str) -> ConversationEntry:
    """An output that was put away: how to read it, and in short what it was."""
    text = prompts.OUTPUT_POINTER.format(size=len(entry.text), handle=handle)
    return replace(entry, text=f"{text}\n{entry.brief}" if entry.brief else text)


def condensed(entries: tuple[ConversationEntry, ...], keep: int) -> tuple[ConversationEntry, ...]:
    """Each step but the last `keep` as one line."""
    start = _start_of_recent(entries, keep)
    pairs = {
        i
        for i, (a, b) in enumerate(pairwise(entries[:start]))
        if (a.kind, b.kind) == (Kind.CODE, Kind.OUTPUT)
    }
    shorter = []
    for index, entry in enumerate(entries[:start]):
        if index in pairs:
            line = prompts.STEP_LINE.format(code=entry.brief, outcome=entries[index + 1].brief)
            shorter.append(ConversationEntry(kind=Kind.NOTE, text=line))
        elif index - 1 not in pairs:
            shorter.append(entry)
    return (*shorter, *entries[start:])


def transcript(entries: tuple[ConversationEntry, ...]) -> str:
    """The entries as one text."""
    return "\n\n".join(f"{_NAMES[entry.kind]}: {entry.text}" for entry in entries)


def without_middle(text: str, limit: int) -> str:
    """About `limit` characters of a text, half of them from its end."""
    return f"{text[: limit // 2]}\n[... middle left out ...]\n{text[-limit // 2 :]}"


def summary_entry(text: str, names: str) -> ConversationEntry:
    return ConversationEntry(kind=Kind.SUMMARY, text=prompts.SUMMARY.format(summary=text, names=names))


def dropped_entry(names: str) -> ConversationEntry:
    return ConversationEntry(kind=Kind.SUMMARY, text=prompts.DROPPED.format(names=names))


def _start_of_recent(entries: tuple[ConversationEntry, ...], keep: int) -> int:
    """Index of the first entry of the last `keep` steps, those before the previous task not counted."""
    if keep == 0:
        return len(entries)
    steps = [i for i, entry in enumerate(entries) if entry.kind is Kind.CODE]
    tasks = [0, 0, *(i for i, entry in enumerate(entries) if entry.kind is Kind.TASK)]
    return max(tasks[-2], steps[-keep]) if keep <= len(steps) else tasks[-1]


TRIGGER = 0.8
"""Share of the window at which room is made: the rest is for the answer and for errors of counting."""

TARGET = 0.5
"""Share of the window to come down to, so that the next compaction (and the loss of the prompt cache) is far off."""

TRANSCRIPT = 0.6
"""Share of the window that the transcript may take in the call that asks for a summary."""

KEPT_STEPS = 2
"""Last steps that stay word for word as long as that does."""

MAX_FAILURES = 3
"""Summaries that may fail in a row before the model is asked for none any more."""

_REGROWTH = 1.1
"""How much a conversation that could not be made short enough grows before that is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When and how a conversation is made shorter.

    trigger: share of the context window at which it is. target: share to come down to.
    kept_steps: last steps that stay word for word as long as that does.
    summarise: whether the model is asked for a summary; else what is oldest is dropped, when steps as lines are not
        short enough.
    model: who summarises; None for the agent's own.
    count_tokens: how many tokens a text has; None for the tokenizer that fits the model best. It also counts what
        no server reports, and what limits of tokens are about.

    Raises UsageError for settings that make no sense.
    """

    trigger: float = TRIGGER
    target: float = TARGET
    kept_steps: int = KEPT_STEPS
    summarise: bool = True
    model: Any = None  # a Model; its class would bring along what does I/O
    count_tokens: Callable[[str], int] | None = None

    def __post_init__(self) -> None:
        for name in ("trigger", "target"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
                raise UsageError(
                    f"{name} is a share of the window, above 0 and at most 1, not {share!r:.100}"
                )
        if self.target > self.trigger:
            raise UsageError(f"target is at most trigger, not {self.target:g} with {self.trigger:g}")
        if isinstance(self.kept_steps, bool) or not isinstance(self.kept_steps, int) or self.kept_steps < 1:
            raise UsageError(f"kept_steps is a number of steps, at least 1, not {self.kept_steps!r:.100}")
        if self.model is not None and not callable(getattr(self.model, "stream", None)):
            raise UsageError(f"model is a model, such as LiteLLMModel(...), not {type(self.model).__name__}")
        if self.count_tokens is not None and not callable(self.count_tokens):
            raise UsageError(f"count_tokens is a function of a text, not {self.count_tokens!r:.100}")


class Compaction:
    """Three tiers, each costing more than the one before: outputs are put away where code can read them; steps
    become lines; the model summarises. Where it cannot, what is oldest is dropped. The state itself is safe in
    the namespace, whose names the model is told.
    """

    def __init__(
        self,
        conversation: Conversation,
        counter: Counter,
        window: int,
        bounds: Bounds | None = None,
        policy: CompactionPolicy | None = None,
    ) -> None:
        self._bounds = bounds or Bounds()
        self._policy = policy or CompactionPolicy()
        self._conversation = conversation
        self._counter = counter
        self._window = window
        self._failures = 0
        self._floor = 0

    def fit(self, window: int) -> None:
        """The model's window has so many tokens."""
        self._window = window

    def make_room(self, ledger: RunLedger) -> Flow[None]:
        """Compact the conversation if it has come near the window's end."""
        limit = max(int(self._window * self._policy.trigger), int(self._floor * _REGROWTH))
        if self._conversation.exceeds(limit):
            yield from self._compact(int(self._window * self._policy.target), ledger)

    def after_refusal(self, ledger: RunLedger) -> Flow[bool]:
        """Compact a conversation that the model found too long, whatever was counted; False if that is impossible."""
        tokens = self._conversation.tokens()
        self._window = min(self._window, tokens)
        return (yield from self._compact(int(tokens * min(self._policy.target, TARGET)), ledger))

    def _compact(self, target: int, ledger: RunLedger) -> Flow[bool]:
        before = self._conversation.tokens()
        share = f"{before:,} of {self._window:,} tokens"
        yield Emit(news(EventType.COMPACTING, f"the conversation has {share}"))
        done = yield from self._shrink(target, ledger)
        after = self._floor = self._conversation.tokens()
        yield Emit(news(EventType.COMPACTED, f"{done}: {before:,} -> {after:,} tokens"))
        return after < before

    def _shrink(self, target: int, ledger: RunLedger) -> Flow[str]:
        """Go through the tiers until the conversation is short enough; gives what was done."""
        done = []
        tiers: list[tuple[str, Callable[[], Flow[bool]]]] = [
            ("outputs put away", lambda: self._put_outputs_away(self._policy.kept_steps)),
            ("steps shortened to lines", lambda: self._condense(self._policy.kept_steps)),
            ("summarised", lambda: self._summarise(ledger)),
            ("oldest dropped", lambda: self._drop(1)),
            ("last outputs put away", lambda: self._put_outputs_away(0)),
            ("all but the task dropped", lambda: self._drop(0)),
        ]
        for name, tier in tiers:
            if (yield from tier()):
                done.append(name)
            if self._conversation.tokens() <= target:
                break
        return ", ".join(done) or "nothing could be shortened"

    def _put_outputs_away(self, keep: int) -> Flow[bool]:
        entries = self._conversation.entries
        found = long_outputs(entries, keep)
        handles: dict[ConversationEntry, str] = {}
        for entry in found:
            handles[entry] = (yield from ask(KeepOutput(entry.cell, entry.text), OutputKept)).handle
        self._conversation.entries = tuple(
            pointer_entry(entry, handles[entry]) if entry in handles else entry for entry in entries
        )
        return bool(found)

    def _condense(self, keep: int) -> Flow[bool]:
        yield from ()
        return self._replace(condensed(self._conversation.entries, keep))

    def _drop(self, keep: int) -> Flow[bool]:
        old, recent = split(self._conversation.entries, keep)
        if not old:
            return False
        scene = yield from ask(DescribeRuntime(), RuntimeDescription)
        return self._replace((dropped_entry(scene.names), *recent))

    def _summarise(self, ledger: RunLedger) -> Flow[bool]:
        old, recent = split(self._conversation.entries, keep=1)
        if not old or not self._policy.summarise or self._failures >= MAX_FAILURES:
            return False
        summary = yield from self._ask_for_summary(old, ledger)
        if not summary:
            self._failures += 1
            return False
        self._failures = 0
        scene = yield from ask(DescribeRuntime(), RuntimeDescription)
        return self._replace((summary_entry(summary, scene.names), *recent))

    def _transcript(self, old: tuple[ConversationEntry, ...]) -> str:
        """What is to be summarised, cut so that it fits into the window itself."""
        text = transcript(old)
        tokens, most = self._counter.count(text), int(self._window * TRANSCRIPT)
        return text if tokens <= most else without_middle(text, len(text) * most // tokens)

    def _replace(self, entries: tuple[ConversationEntry, ...]) -> bool:
        changed = entries != self._conversation.entries
        self._conversation.entries = entries
        return changed

    def _ask_for_summary(self, old: tuple[ConversationEntry, ...], ledger: RunLedger) -> Flow[str]:
        """The model's summary; empty if it failed, for whatever reason."""
        transcript = self._transcript(old)
        messages = (
            Message.system(prompts.COMPACTION_INSTRUCTIONS),
            Message.user(prompts.COMPACTION_TRANSCRIPT.format(transcript=transcript)),
        )
        meter = self._meter(messages, ledger)
        if meter is None:
            return ""
        yield StartTurn(messages, is_summary=True)
        text = thoughts = ""
        while True:
            if meter.is_too_long or meter.is_unaffordable:
                stopped = yield from ask(StopTurn(), TurnStopped)
                ledger.book_call(self._counter.estimate(messages, thoughts + text), stopped.seconds)
                return ""
            match (yield NextChunk()):
                case TextDelta(piece):
                    text += piece
                    meter.add(piece)
                case Thought(piece):
                    meter.add(piece)
                    thoughts += piece
                case TurnEnded(reason, usage, seconds):
                    ledger.book_call(usage, seconds)
                    return text.strip() if ending_of(reason) in (TurnEnd.WHOLE, TurnEnd.CUT) else ""
                case ModelFailed(_, seconds):
                    ledger.book_call(self._counter.estimate(messages, thoughts + text), seconds)
                    return ""
                case other:
                    raise TypeError(f"NextChunk is not answered by {type(other).__name__}")

    def _meter(self, messages: tuple[Message, ...], ledger: RunLedger) -> AnswerMeter | None:
        """For a summary; None where it cannot be afforded."""
        prompt = self._counter.messages(messages) if self._bounds.counts_tokens else 0
        try:
            self._bounds.check_call(ledger.total, prompt)
        except RunStoppedError:
            return None
        room = self._bounds.room(ledger.total, prompt)
        return AnswerMeter(self._counter.count, room, self._bounds.answer_length)
