"""Compaction, in the CaveAgent library's terms: settings for Cenote's agents, and the same for lists of messages."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from cenote.agent import CompactionPolicy
from cenote.cave_agent.messages import (
    ExecutionResultMessage,
    Message,
    MessageRole,
    SummaryAcknowledgementMessage,
    SummaryMessage,
)
from cenote.cave_agent.models import ModelResponse, PromptTooLongError, in_cenote, with_call
from cenote.models import ModelError
from cenote_security.errors import UsageError

DEFAULT_CONTEXT_WINDOW = 128_000
COMPACT_BUFFER_TOKENS = 13_000
"""Tokens for what is added before the next check."""
_OUTPUT_RESERVE = 16_000
"""Tokens for an answer, where neither compactor nor model says how long one may be."""
_TARGET = 0.6
"""Share of the threshold that a conversation is brought down to."""

_KEPT_OUTPUTS = 6
"""Last outputs that stay whole when older ones are taken out."""
_KEPT_MESSAGES = 4
"""Last messages that no summary replaces, at the least."""
_SMALLEST = 400
"""Characters of a message that is cut in two for a summary. Shorter ones are asked about whole."""

MAX_CONSECUTIVE_FAILURES = 3
"""Summaries that may fail before some are skipped."""
COOLDOWN_ATTEMPTS = 10
"""Summaries that are skipped then."""

COMPACTION_SUMMARY_MARKER = "[Previous conversation summary]"
_ACKNOWLEDGED = "Understood. I have the context from our previous conversation and I'm ready to continue."
"""What that library wrote into conversations before 0.8.0: the first line of a summary, and the answer to one."""

MICROCOMPACT_PLACEHOLDER = "[An old output, taken out to save room.]"
COMPACTION_SUMMARY_USER_TEMPLATE = "<conversation-summary>\n{summary}\n</conversation-summary>"
COMPACTION_SUMMARY_ASSISTANT_PLACEHOLDER = "I go on from this summary."
COMPACT_SYSTEM_PROMPT = """\
You summarise the transcript of an agent that works in Python, for the agent itself to go on from. Write no code and \
call no tools. First weigh in <analysis>...</analysis> what matters; that is thrown away. Then write \
<summary>...</summary> with: what the user wants, every request in order; decisions; code that ran and what it \
changed; results, with exact names and numbers; errors and how they were solved; variables that exist; what is left \
to do."""
COMPACT_USER_PROMPT = "Summarise this transcript."
COMPACT_UPDATE_USER_TEMPLATE = """\
<existing_summary>
{prior_summary}
</existing_summary>

<new_turns>
{transcript}
</new_turns>

Bring the existing summary up to date with the new turns. Keep its facts word for word unless a new turn overrides \
them."""

_HANDLE = re.compile(r"characters left out; ([^\[\]\n]{1,200})\[\d")
"""Where an output that was too long to be shown can be read."""

_log = logging.getLogger(__name__)


def compact_threshold(context_window: int, output_reserve: int) -> int:
    """Tokens from which on a conversation is made shorter."""
    threshold = context_window - output_reserve - COMPACT_BUFFER_TOKENS
    return threshold if threshold > 0 else context_window // 2


DEFAULT_TOKENS_PER_CHAR = 0.25
"""Of letters, digits and signs that ASCII and the Latin alphabets have."""
CJK_TOKENS_PER_CHAR = 1.25
_RATES = (
    (re.compile("[\u0370-\u03ff]"), 1.2),  # Greek
    (re.compile("[\u0400-\u052f]"), 0.75),  # Cyrillic
    (re.compile("[\u0590-\u06ff]"), 1.2),  # Hebrew, Arabic
    (re.compile("[\u0900-\u0e7f]"), 2.0),  # of India, Thai
    (
        re.compile("[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]"),
        CJK_TOKENS_PER_CHAR,
    ),
    (re.compile("[\U0001f000-\U0001ffff]"), 3.0),  # emoji
    (re.compile("[\U00020000-\U0003ffff]"), 4.0),  # rare ideographs
)
_OTHER_RATE = 3.4
"""Tokens for each character of scripts that vocabularies have no room for: a byte each."""
_LATIN = re.compile("[\x00-\u036f]")


def default_token_estimate(text: str) -> int:
    """Tokens of a text, by rates for characters: rather too many, but for dense code.

    An agent's own compaction counts with a tokenizer, unless its Compactor has an estimator.
    """
    rates = [(_LATIN, DEFAULT_TOKENS_PER_CHAR), *_RATES]
    counts = [len(letters.findall(text)) for letters, _ in rates]
    rated = sum(number * rate for number, (_, rate) in zip(counts, rates, strict=True))
    return int(rated + (len(text) - sum(counts)) * _OTHER_RATE)


def tiktoken_estimator(encoding: str = "o200k_base") -> Callable[[str], int]:
    """Counts with an encoding of tiktoken. Raises ImportError where that is missing."""
    import tiktoken  # slow to import, and loads its vocabulary

    encoder = tiktoken.get_encoding(encoding)
    return lambda text: len(encoder.encode(text, disallowed_special=()))


@dataclass(frozen=True)
class TokenAnchor:
    """A size that a server has reported, and what was counted then."""

    api_tokens: int
    heuristic_tokens: int


def estimate_tokens(
    messages: Iterable[Message],
    anchor: TokenAnchor | None = None,
    token_estimator: Callable[[str], int] | None = None,
) -> int:
    """Tokens of messages. With an anchor: what was reported, and what has been counted since."""
    count = token_estimator or default_token_estimate
    counted = sum(count(message.content) for message in messages)
    if anchor is None or anchor.api_tokens <= 0 or counted < anchor.heuristic_tokens:
        return counted
    return anchor.api_tokens + counted - anchor.heuristic_tokens


@dataclass
class CompactionState:
    """Whether summaries work. After some failures the next ones are skipped, then one is tried again."""

    consecutive_failures: int = 0
    cooldown_remaining: int = 0

    @property
    def is_open(self) -> bool:
        """Whether summaries are skipped now."""
        return self.cooldown_remaining > 0

    def record_success(self) -> None:
        self.consecutive_failures = self.cooldown_remaining = 0

    def record_failure(self) -> None:
        self.consecutive_failures += 1
        if self.consecutive_failures >= MAX_CONSECUTIVE_FAILURES:
            self.cooldown_remaining = COOLDOWN_ATTEMPTS

    def should_skip(self) -> bool:
        """Whether to skip the summary that is due. Counts as one skipped."""
        if not self.is_open:
            return False
        self.cooldown_remaining -= 1
        if not self.is_open:
            self.consecutive_failures = 0
        return True


@dataclass
class Compactor:
    """Who summarises, from when on, and how tokens are counted. Cenote's agents work by these settings.

    The methods over lists of messages are for scripts that shorten a conversation by themselves. They give the list
    itself where nothing is done, and lose nothing where a summary fails.

    output_reserve: tokens for an answer; None for what the agent's model, or this one, says (`max_output_tokens`).
    """

    model: Any
    context_window: int = field(default=DEFAULT_CONTEXT_WINDOW, kw_only=True)
    output_reserve: int | None = field(default=None, kw_only=True)
    token_estimator: Callable[[str], int] | None = field(default=None, kw_only=True)
    state: CompactionState = field(default_factory=CompactionState, init=False, repr=False)
    _adopted: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.context_window, int) or self.context_window < 1000:
            raise UsageError(f"context_window must be at least 1000, not {self.context_window!r:.100}")

    def adopt_output_reserve(self, tokens: int | None) -> None:
        """An agent's model answers with up to so many tokens. The largest counts."""
        if tokens is not None:
            self._adopted = max(tokens, self._adopted or 0)

    def threshold(self) -> int:
        """Tokens from which on a conversation is made shorter."""
        said = (self.output_reserve, self._adopted, getattr(self.model, "max_output_tokens", None))
        reserve = next((tokens for tokens in said if tokens is not None), _OUTPUT_RESERVE)
        return compact_threshold(self.context_window, reserve)

    def estimate_tokens(self, messages: Iterable[Message], *, anchor: TokenAnchor | None = None) -> int:
        return estimate_tokens(messages, anchor, self.token_estimator)

    def anchor(self, messages: Iterable[Message], api_tokens: int) -> TokenAnchor:
        return TokenAnchor(api_tokens, self.estimate_tokens(messages))

    def policy(self, agents_model: Any) -> CompactionPolicy:
        """The same for Cenote's agents."""
        trigger = min(self.threshold() / self.context_window, 1.0)
        policy = CompactionPolicy(
            trigger=trigger, target=trigger * _TARGET, count_tokens=self.token_estimator
        )
        return policy if self.model is agents_model else replace(policy, model=in_cenote(self.model))

    def microcompact(
        self, messages: list[Message], *, anchor: TokenAnchor | None = None
    ) -> tuple[list[Message], bool]:
        """Without old outputs, if the messages are above the threshold; and whether they still are."""
        tokens = self.estimate_tokens(messages, anchor=anchor)
        if tokens <= self.threshold():
            return messages, False
        shorter = without_old_outputs(messages)
        saved = self.estimate_tokens(messages) - self.estimate_tokens(shorter)
        return shorter, tokens - saved > self.threshold()

    async def summarize(self, messages: list[Message]) -> list[Message]:
        """The older half as a summary."""
        old, kept = _parted(messages, 2)
        if not old or self.state.should_skip():
            return messages
        summary = await self._tried(old)
        if summary is None:
            self.state.record_failure()
            return messages
        self.state.record_success()
        return _with_summary(messages, summary, kept)

    async def recover_from_overflow(self, messages: list[Message]) -> list[Message]:
        """For a prompt that was refused as too long: old outputs taken out, and all but a quarter as a summary."""
        shorter = without_old_outputs(messages)
        old, kept = _parted(shorter, 4)
        summary = await self._tried(old) if old else None
        return shorter if summary is None else _with_summary(shorter, summary, kept)

    async def _tried(self, messages: Sequence[Message]) -> str | None:
        try:
            return await self._summary(messages)
        except (ModelError, ValueError, OSError) as error:
            _log.warning("no summary: %s: %s", type(error).__name__, error)
            return None

    async def _summary(self, messages: Sequence[Message]) -> str:
        """The last summary among the messages, brought up to date with what follows; else a new one."""
        summary = next((m.body for m in reversed(messages) if isinstance(m, SummaryMessage)), None)
        waiting = [
            [m for m in _without_summaries(messages) if m.content and m.content != MICROCOMPACT_PLACEHOLDER]
        ]
        if not waiting[0]:
            if summary is None:
                raise ValueError("there is nothing to summarise")
            return summary
        while waiting:
            part = waiting.pop()
            halves = _halves(part)
            if halves and self._is_too_long(part, summary):
                waiting += reversed(halves)
                continue
            try:
                response = await with_call(self.model).call(_request(part, summary))
            except PromptTooLongError:
                if not halves:
                    raise
                waiting += reversed(halves)
                continue
            summary = _usable(response)
        assert summary is not None, "there was a part"
        return summary

    def _is_too_long(self, part: Sequence[Message], summary: str | None) -> bool:
        """Whether a request would exceed the threshold. A quarter of it is always there for the part itself."""
        fixed = sum(map(self._count, (message["content"] for message in _request([], summary))))
        room = max(self.threshold() - fixed, self.threshold() // 4)
        return self._count(format_transcript(part, None)) > room

    def _count(self, text: str) -> int:
        return (self.token_estimator or default_token_estimate)(text)


def parse_legacy_summary(text: str) -> str | None:
    """The summary in a message that a version before 0.8.0 of that library has written; None for any other text."""
    first, _, body = text.partition("\n")
    return body if first == COMPACTION_SUMMARY_MARKER and body else None


def migrate_legacy_summaries(messages: Iterable[Message]) -> list[Message]:
    """A history that a version before 0.8.0 has stored, with its summaries as such.

    Only for a history that is known to be one: users can write the same words. So each needs the answer to it, too.
    """
    given = list(messages)
    migrated = list(given)
    for index, (one, other) in enumerate(pairwise(given)):
        body = parse_legacy_summary(one.content) if one.role == MessageRole.USER else None
        if body is None or other.role != MessageRole.ASSISTANT:
            continue
        if other.content in (_ACKNOWLEDGED, COMPACTION_SUMMARY_ASSISTANT_PLACEHOLDER):
            migrated[index] = SummaryMessage(one.content, body)
            migrated[index + 1] = SummaryAcknowledgementMessage(other.content)
    return migrated


def format_transcript(messages: Iterable[Message], max_chars_per_msg: int | None = 2000) -> str:
    """Messages as one text, without outputs that were taken out. max_chars_per_msg: None for whole ones."""
    parts = [
        (message.role.value, message.content)
        for message in messages
        if message.content and message.content != MICROCOMPACT_PLACEHOLDER
    ]
    if max_chars_per_msg is not None:
        parts = [
            (role, text if len(text) <= max_chars_per_msg else f"{text[:max_chars_per_msg]}...")
            for role, text in parts
        ]
    return "\n\n".join(f"[{role}]: {text}" for role, text in parts)


def extract_summary(raw_output: str) -> str:
    """The summary in a model's answer, or all of it where nothing is marked as one."""
    marked, closed, _ = raw_output.partition("<summary>")[2].partition("</summary>")
    return (marked if closed else raw_output).strip()


def without_old_outputs(messages: list[Message]) -> list[Message]:
    """The last outputs stay, and how to read those that are variables. The list itself if nothing changes."""
    outputs = [index for index, one in enumerate(messages) if one.role == MessageRole.EXECUTION_RESULT]
    shorter = {index: _pointer(messages[index].content) for index in outputs[:-_KEPT_OUTPUTS]}
    if all(messages[index].content == text for index, text in shorter.items()):
        return messages
    return [
        ExecutionResultMessage(shorter[index]) if index in shorter else message
        for index, message in enumerate(messages)
    ]


def _pointer(output: str) -> str:
    handle = _HANDLE.search(output)
    if handle is None:
        return output if output.startswith(MICROCOMPACT_PLACEHOLDER) else MICROCOMPACT_PLACEHOLDER
    return f"{MICROCOMPACT_PLACEHOLDER} {handle[1]} has it."


def _parted(messages: Sequence[Message], share: int) -> tuple[list[Message], list[Message]]:
    """What is old, and the last part, one of `share`: it never begins with an output whose code is old."""
    body = [m for m in messages[:1] if m.role != MessageRole.SYSTEM] + list(messages[1:])
    start = max(len(body) - max(len(body) // share, _KEPT_MESSAGES), 0)
    while start and body[start].role == MessageRole.EXECUTION_RESULT:
        start -= 1
    return body[:start], body[start:]


def _with_summary(messages: Sequence[Message], summary: str, kept: Sequence[Message]) -> list[Message]:
    head = [m for m in messages[:1] if m.role == MessageRole.SYSTEM]
    told: list[Message] = [SummaryMessage(COMPACTION_SUMMARY_USER_TEMPLATE.format(summary=summary), summary)]
    if not kept or kept[0].wire_role != "assistant":  # several providers insist on turns
        told.append(SummaryAcknowledgementMessage(COMPACTION_SUMMARY_ASSISTANT_PLACEHOLDER))
    return [*head, *told, *kept]


def _without_summaries(messages: Sequence[Message]) -> list[Message]:
    return [m for m in messages if not isinstance(m, SummaryMessage | SummaryAcknowledgementMessage)]


def _halves(part: list[Message]) -> tuple[list[Message], list[Message]] | None:
    """Both are shorter; None for a part that is not cut any more."""
    if len(part) > 1:
        return part[: len(part) // 2], part[len(part) // 2 :]
    (message,) = part
    middle = len(message.content) // 2
    if len(message.content) < _SMALLEST:
        return None
    return (
        [Message(message.content[:middle], message.role)],
        [Message(message.content[middle:], message.role)],
    )


def _request(part: Sequence[Message], summary: str | None) -> list[dict[str, str]]:
    transcript = format_transcript(part, None)
    if summary is None:
        wanted = f"{transcript}\n\n{COMPACT_USER_PROMPT}"
    else:
        wanted = COMPACT_UPDATE_USER_TEMPLATE.format(prior_summary=summary, transcript=transcript)
    return [{"role": "system", "content": COMPACT_SYSTEM_PROMPT}, {"role": "user", "content": wanted}]


def _usable(response: ModelResponse) -> str:
    """The summary in an answer. Raises ValueError for a refusal and for one that is not whole."""
    if response.refusal:
        raise ValueError(f"the model declined to summarise: {response.refusal:.200}")
    if response.finish_reason != "stop":
        raise ValueError(f"the summary is not whole, it ended with {response.finish_reason!r}")
    summary = extract_summary(response.content or "")
    if not summary:
        raise ValueError("the summary is empty")
    return summary
