"""The CaveAgent library's Compactor over lists of messages, its parser, and which errors it asks again after."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cenote.cave_agent import compaction
from cenote.cave_agent.compaction import CompactionState, Compactor, extract_summary, format_transcript
from cenote.cave_agent.messages import (
    AssistantMessage,
    CodeExecutionMessage,
    ExecutionResultMessage,
    Message,
    SummaryAcknowledgementMessage,
    SummaryMessage,
    SystemMessage,
    UserMessage,
    sanitize_surrogates,
)
from cenote.cave_agent.models import (
    LiteLLMModel,
    Model,
    ModelResponse,
    PromptTooLongError,
    StreamResponse,
    is_retryable,
)
from cenote.cave_agent.parsing import SegmentType, StreamingTextParser
from cenote.models import ScriptedModel
from cenote_security.errors import UsageError


class Summariser(Model):
    """Answers with the given responses, the last one again and again. limit: characters of a prompt that it takes."""

    def __init__(self, *responses: ModelResponse | Exception, limit: int = 10**9) -> None:
        self.responses = list(responses) or [ModelResponse("<summary>short</summary>", finish_reason="stop")]
        self.limit = limit
        self.prompts: list[str] = []

    async def _complete(self, messages: list[dict[str, str]]) -> ModelResponse:
        if sum(len(message["content"]) for message in messages) > self.limit:
            raise PromptTooLongError("maximum context length")
        self.prompts.append(messages[-1]["content"])
        response = self.responses[0] if len(self.responses) == 1 else self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    def stream(self, messages: list[dict[str, str]]) -> StreamResponse:
        raise NotImplementedError


def exchanges(count: int, output: str = "output") -> list[Message]:
    pairs = [
        (CodeExecutionMessage(f"code {i}"), ExecutionResultMessage(f"{output} {i}")) for i in range(count)
    ]
    return [message for pair in pairs for message in pair]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages]


def test_old_outputs_are_taken_out_above_the_threshold_only() -> None:
    """The last six stay, and the name of a variable that has an old one. Below it, the list itself comes back."""
    long = "[... 9000 characters left out; _output_1[10:20] reads them]"
    messages = [SystemMessage("s"), *exchanges(1, long), *exchanges(8, "four " * 2000)]
    compactor = Compactor(Summariser(), context_window=30_000, output_reserve=0)
    shorter, still = compactor.microcompact(messages)
    assert (len(messages), False) == (len(shorter), still)
    assert f"{compaction.MICROCOMPACT_PLACEHOLDER} _output_1 has it." == shorter[2].content
    assert 2 == texts(shorter).count(compaction.MICROCOMPACT_PLACEHOLDER)
    assert messages[-1] is shorter[-1]
    assert (shorter, False) == compactor.microcompact(shorter)
    assert shorter is compactor.microcompact(shorter)[0]


def test_what_a_server_has_reported_counts() -> None:
    """An estimate that is too low does not end the work early."""
    messages = exchanges(12, "word " * 100)
    compactor = Compactor(Summariser(), context_window=18_000, output_reserve=0)
    assert compactor.microcompact(messages, anchor=compactor.anchor(messages, 50_000))[1]


async def test_the_older_half_becomes_a_summary() -> None:
    """Between system message and the rest, which begins with code, not with its output alone."""
    messages = [SystemMessage("s"), UserMessage("task"), *exchanges(10)]
    model = Summariser()
    shorter = await Compactor(model).summarize(messages)
    assert messages[0] is shorter[0]
    assert isinstance(shorter[1], SummaryMessage)
    assert ("short", "code 5") == (shorter[1].body, shorter[2].content)
    assert "[execution_result]: output 4" in model.prompts[0]
    few = exchanges(1)
    assert few is await Compactor(model).summarize(few)


async def test_a_summary_is_brought_up_to_date() -> None:
    """It is handed over word for word, and is no turn of the conversation. Nothing new needs no call."""
    first = await Compactor(Summariser()).summarize([UserMessage(f"m{i}") for i in range(24)])
    assert isinstance(first[1], SummaryAcknowledgementMessage)
    model = Summariser()
    await Compactor(model).summarize([*first, *exchanges(10)])
    before, after = model.prompts[0].split("<new_turns>")
    assert ("short" in before, "short" in after, "conversation-summary" in after) == (True, False, False)
    again = [first[0], first[1], *(UserMessage(f"n{i}") for i in range(4))]
    same = await Compactor(model).summarize(again)
    assert (1, "short") == (len(model.prompts), same[0].body)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "response",
    [
        ModelResponse("<summary>half", finish_reason="length"),
        ModelResponse("<summary>x</summary>"),
        ModelResponse("", finish_reason="stop"),
        ModelResponse("no", finish_reason="stop", refusal="no"),
        ValueError("broken"),
    ],
)
async def test_a_summary_that_fails_loses_nothing(response: ModelResponse | Exception) -> None:
    """After three failures ten summaries are skipped, then one is tried again."""
    messages = exchanges(20)
    model = Summariser(response)
    compactor = Compactor(model)
    for _ in range(3):
        assert messages is await compactor.summarize(messages)
    assert compactor.state.is_open
    asked = len(model.prompts)
    for _ in range(10):
        await compactor.summarize(messages)
    assert asked == len(model.prompts)
    await compactor.summarize(messages)
    assert asked + 1 == len(model.prompts)


async def test_what_is_too_long_for_one_request_is_summarised_in_parts() -> None:
    """Each goes on from the summary of those before it; also one long message, and a window that is all reserved."""
    model = Summariser(limit=6000)
    compactor = Compactor(model, context_window=8000, output_reserve=0, token_estimator=len)
    await compactor.summarize([UserMessage("§" * 20_000), *(UserMessage(f"m{i}") for i in range(19))])
    assert 4 <= len(model.prompts) <= 40
    assert all("<existing_summary>\nshort" in prompt for prompt in model.prompts[1:])
    assert 20_000 == sum(prompt.count("§") for prompt in model.prompts)
    reserved = Summariser()
    await Compactor(reserved, context_window=8192, output_reserve=8192).summarize(exchanges(20))
    assert 1 == len(reserved.prompts)


async def test_after_a_refusal_more_is_summarised() -> None:
    """Whether summaries have failed or not; where this one does, old outputs are taken out anyway."""
    compactor = Compactor(Summariser())
    compactor.state = CompactionState(consecutive_failures=9, cooldown_remaining=9)
    messages = [SystemMessage("s"), *exchanges(20)]
    shorter = await compactor.recover_from_overflow(messages)
    assert 12 == len(shorter)
    failed = await Compactor(Summariser(ValueError("broken"))).recover_from_overflow(messages)
    assert (len(messages), compaction.MICROCOMPACT_PLACEHOLDER) == (len(failed), failed[2].content)


async def test_a_model_of_cenote_summarises_too() -> None:
    """Its text is the whole summary where nothing is marked as one."""
    shorter = await Compactor(ScriptedModel(["All is well."])).summarize(exchanges(20))
    assert "All is well." == shorter[0].body  # type: ignore[attr-defined]


def test_transcripts_and_summaries_are_plain_text() -> None:
    """Long messages are cut on request; what was weighed before a summary is no part of it."""
    said = [UserMessage("x" * 30), AssistantMessage(compaction.MICROCOMPACT_PLACEHOLDER)]
    assert f"[user]: {'x' * 10}..." == format_transcript(said, 10)
    assert "B" == extract_summary("<analysis>A</analysis>\n<summary>\nB\n</summary>")
    assert "C" == extract_summary(" C ")


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_answer_is_split_into_text_and_code(size: int) -> None:
    """However it is cut. What follows the block is not read; an empty block is text."""
    answer = "Empty:\n```python\n```\nLook:\n```Python title\n  x = '''\n```\n'''\n```\nand more"
    parser = StreamingTextParser()
    segments = [s for i in range(0, len(answer), size) for s in parser.process_chunk(answer[i : i + size])]
    text = "".join(s.content for s in segments if s.type is SegmentType.TEXT)
    assert "Empty:\n```python\n```\nLook:\n" == text
    assert ["x = '''\n```\n'''"] == [s.content for s in segments if s.type is SegmentType.CODE]
    assert parser.is_first_code_block_completed()
    assert [] == parser.flush()


def test_an_open_block_is_given_at_the_end() -> None:
    """Then the parser begins anew."""
    parser = StreamingTextParser("python")
    assert [] == parser.process_chunk("```python\nx = 1\n``")
    assert [(SegmentType.CODE, "x = 1\n``")] == [(s.type, s.content) for s in parser.flush()]
    assert ["a"] == [s.content for s in parser.process_chunk("a")]
    with pytest.raises(UsageError, match="language_identifier"):
        StreamingTextParser(" ")


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectionError("lost"), True),
        (TimeoutError(), True),
        (Exception("connection reset by peer"), True),
        (Exception("request timed out"), True),
        (Exception("something else"), False),
        (TypeError("timeout"), False),
    ],
)
def test_errors_after_which_asking_again_may_help(error: Exception, again: bool) -> None:
    assert again == is_retryable(error)


def test_the_length_of_answers_is_sent_to_litellm() -> None:
    """As that library does. One that the request names is left as it is."""
    assert 50 == LiteLLMModel("openai/m", max_output_tokens=50).kwargs["max_tokens"]
    named = LiteLLMModel("openai/m", max_output_tokens=50, max_completion_tokens=50)
    assert {"max_completion_tokens": 50} == named.kwargs
    assert {} == LiteLLMModel("openai/m").kwargs


def test_summaries_of_older_versions_become_summaries() -> None:
    """Where the answer to one follows. The same words in any other place are a user's own."""
    old = UserMessage("[Previous conversation summary]\nFacts.")
    said = "Understood. I have the context from our previous conversation and I'm ready to continue."
    summary, answer, task = compaction.migrate_legacy_summaries(
        [old, AssistantMessage(said), UserMessage("t")]
    )
    assert isinstance(summary, SummaryMessage)
    assert "Facts." == summary.body
    assert isinstance(answer, SummaryAcknowledgementMessage)
    assert "t" == task.content
    others = [old, AssistantMessage("Sure."), UserMessage("x [Previous conversation summary]\ny")]
    assert others == compaction.migrate_legacy_summaries(others)


@pytest.mark.parametrize(
    ("expected", "text"), [(0, ""), (10, "x" * 40), (12, "你好世界" * 2 + "abcdefgh"), (3, "😀")]
)
def test_tokens_are_estimated_by_rates_for_scripts(expected: int, text: str) -> None:
    """A quarter for a Latin letter, more for others, and never a tokenizer to load."""
    assert expected == compaction.default_token_estimate(text)


def test_lone_surrogates_are_replaced() -> None:
    """A text with one can be sent nowhere."""
    assert "a\ufffdb😀" == sanitize_surrogates("a\ud800b😀")
