"""Model calls on a budget: reserved before, settled after, cut off in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

import pytest

from cenote.models import (
    Message,
    Model,
    ModelChunk,
    ModelInterruptedError,
    ModelResponseError,
    ModelTurn,
    ModelUnavailableError,
    ScriptedModel,
    TokenUsage,
)
from cenote.models.prices import Price
from cenote.team.budget import Budget
from cenote.team.budget_ledger import BudgetLedger
from cenote.team.errors import BudgetExceededError
from cenote.team.metered_model import Meter, MeteredModel

PROMPT = (Message.user("How many penguins are there?"),)


def metered(model: Model, price: Price | None = None, **limits: float) -> tuple[MeteredModel, BudgetLedger]:
    treasury = BudgetLedger(Budget(**limits))
    return MeteredModel(model, treasury, Meter(), price), treasury


def reporting(prompt: int, completion: int) -> ScriptedModel:
    """A model whose server reports this usage."""
    return ScriptedModel([ModelTurn("Many.", "stop", TokenUsage(prompt=prompt, completion=completion))] * 9)


async def test_the_reported_usage_is_settled() -> None:
    """Whatever was estimated: the server's figure counts in the end."""
    model, treasury = metered(reporting(40, 2), tokens=10_000)
    assert "Many." == (await model.complete(PROMPT)).text
    assert (42, 10_000 - 42) == (treasury.spent.tokens, treasury.remaining().tokens)


class Nameless(Model):
    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        yield ModelTurn("Many.", "stop", TokenUsage(prompt=40, completion=2))


async def test_a_model_that_has_no_name() -> None:
    """A user's own model class works in a team as with a single agent; it has no known price."""
    model, treasury = metered(Nameless(), tokens=10_000)
    assert ("Many.", "") == ((await model.complete(PROMPT)).text, model.model_id)
    assert 42 == treasury.spent.tokens


async def test_a_call_that_is_not_covered_is_not_made() -> None:
    """Prompt and the longest answer have to fit; otherwise nothing is sent."""
    scripted = ScriptedModel(["Many."])
    model, treasury = metered(scripted, tokens=100, answer=100)
    with pytest.raises(BudgetExceededError, match="tokens") as refusal:
        await model.complete(PROMPT)
    assert ((), 100) == (scripted.prompts, refusal.value.left)
    assert 100 == treasury.remaining().tokens


async def test_an_answer_that_outgrows_its_reservation_is_cut_off() -> None:
    """It ends as if the server had a token limit, shortly after the reserved length."""
    model, treasury = metered(ScriptedModel(["word " * 500], chunk_size=5), tokens=1000, answer=50)
    turn = await model.complete(PROMPT)
    assert ("length", True) == (turn.finish_reason, turn.usage.estimated)
    assert 50 <= turn.usage.completion <= 52
    assert treasury.spent.tokens == turn.usage.total


async def test_an_answer_as_long_as_its_reservation_is_whole() -> None:
    """Bytes are more than tokens: counting begins where it may matter, and then decides by tokens."""
    text = "word " * 49
    model, _ = metered(ScriptedModel([text], chunk_size=5), tokens=1000, answer=50)
    assert (text, "stop") == ((turn := await model.complete(PROMPT)).text, turn.finish_reason)


async def test_a_refused_call_costs_nothing() -> None:
    """The server was unreachable: the whole reservation is returned."""
    model, treasury = metered(ScriptedModel([ModelUnavailableError("no answer")]), tokens=5000)
    with pytest.raises(ModelUnavailableError):
        await model.complete(PROMPT)
    assert (0, 5000) == (treasury.spent.tokens, treasury.remaining().tokens)


async def test_an_answer_that_broke_off_is_paid_for() -> None:
    """No server reports its cost: the prompt and the received text are counted."""
    lost = ModelInterruptedError("lost", partial="There are seven or more ")
    model, treasury = metered(ScriptedModel([lost]), tokens=5000)
    with pytest.raises(ModelInterruptedError):
        await model.complete(PROMPT)
    assert 10 < treasury.spent.tokens < 30
    assert 5000 - treasury.spent.tokens == treasury.remaining().tokens


class Endless(Model):
    """Begins to answer and never ends."""

    model_id = "endless"

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        yield "Hm. "
        self.begun.set()
        await asyncio.Event().wait()


async def test_a_cancelled_call_is_paid_for_and_holds_nothing() -> None:
    """What was sent and received is booked, the rest of the reservation is returned."""
    endless = Endless()
    model, treasury = metered(endless, tokens=5000)
    call = asyncio.create_task(model.complete(PROMPT))
    await endless.begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert 5 < treasury.spent.tokens < 30
    assert 5000 - treasury.spent.tokens == treasury.remaining().tokens


async def test_a_stream_that_is_closed_early_is_settled() -> None:
    """As an agent does when it has read the end of a block."""
    model, treasury = metered(ScriptedModel(["one two three four five six"]), tokens=5000)
    async with aclosing(model.stream(PROMPT)) as chunks:
        await anext(chunks)
    assert 5000 - treasury.spent.tokens == treasury.remaining().tokens
    assert treasury.spent.tokens > 0


async def test_what_a_closed_stream_delivered_is_counted() -> None:
    """The last piece that its reader received included."""
    text = "one two three four five six seven eight nine ten"
    spent = []
    for size in (1, len(text)):
        model, treasury = metered(ScriptedModel([text], chunk_size=size), tokens=5000)
        async with aclosing(model.stream(PROMPT)) as chunks:
            await anext(chunks)
        spent.append(treasury.spent.tokens)
    assert 9 == spent[1] - spent[0]


class Careless(Model):
    """Does not end its answer."""

    model_id = "careless"

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        yield "Hm."


async def test_an_answer_without_an_end_stays_one() -> None:
    """It does not count as cut off; the received part is paid for."""
    model, treasury = metered(Careless(), tokens=5000)
    with pytest.raises(ModelResponseError, match="without a ModelTurn"):
        await model.complete(PROMPT)
    assert treasury.spent.tokens > 5


async def test_money_is_reserved_and_settled_at_the_model_s_price() -> None:
    """A million prompt tokens for a dollar, half of it where they were cached; as many completion tokens for ten."""
    price = Price(prompt=1, completion=10, cached=0.5)
    turn = ModelTurn("Many.", "stop", TokenUsage(prompt=1000, cached=400, completion=100))
    model, treasury = metered(ScriptedModel([turn]), price, cost=1.0)
    await model.complete(PROMPT)
    assert 600_000 + 200_000 + 1_000_000 == treasury.spent.nanodollars
    assert 0.9982 == treasury.remaining().cost


async def test_estimates_follow_what_the_server_reports() -> None:
    """An unknown tokenizer counts more: the next reservation is larger by as much."""
    model, treasury = metered(reporting(1000, 1), tokens=2000, answer=10)
    await model.complete(PROMPT)
    with pytest.raises(BudgetExceededError) as refusal:
        await model.complete(PROMPT)
    assert 1000 <= refusal.value.needed <= 1030
    assert 1001 == treasury.spent.tokens


async def test_without_limits_nothing_is_counted_beforehand() -> None:
    """Only the usage that the calls report is added up."""
    meter = Meter()
    model = MeteredModel(reporting(40, 2), BudgetLedger(Budget()), meter, None)
    await model.complete(PROMPT)
    await model.complete(PROMPT)
    assert (2, 84, 2 * len(PROMPT[0].content)) == (meter.calls, meter.usage.total, meter.prompt_bytes)


@pytest.mark.parametrize(
    ("budget", "reserved"),
    [
        (Budget(), 4096),
        (Budget(tokens=1_000_000), 4096),
        (Budget(tokens=10_000), 1000),
        (Budget(tokens=5), 1),
        (Budget(tokens=10_000, answer=2000), 2000),
        (Budget(cost=1.0), 4096),
        (Budget(cost=0.01), 1000),
    ],
)
def test_no_more_than_a_tenth_of_a_budget_is_reserved(budget: Budget, reserved: int) -> None:
    """Otherwise a small budget would end mostly unspent. A set limit stays. A token costs a thousand nanodollars."""
    assert reserved == budget.reserve(1000)


async def test_a_small_budget_is_spent() -> None:
    """Call after call, until it does not cover a prompt and a tenth of itself."""
    model, treasury = metered(ScriptedModel(["word " * 100] * 50), tokens=3000)
    with suppress(BudgetExceededError):
        for _ in range(50):
            await model.complete(PROMPT)
    assert treasury.spent.tokens <= 3000
    assert treasury.spent.tokens > 2500
