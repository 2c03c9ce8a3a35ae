"""Both network models, against a server with realistic behaviour, over real HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import aclosing

import pytest
from tests.fakes.naps import Naps
from tests.fakes.openai_server import (
    DONE,
    OpenAIServer,
    Reply,
    answer,
    bytewise,
    delta,
    event,
    finish,
    refusal,
    stream,
    usage,
)
from tests.waiting import PATIENCE

from cenote.models import (
    ContextLengthError,
    LiteLLMModel,
    Message,
    Model,
    ModelChunk,
    ModelError,
    ModelInterruptedError,
    ModelRequestError,
    ModelResponseError,
    ModelTurn,
    ModelUnavailableError,
    OpenAIServerModel,
    RetryPolicy,
    TokenUsage,
    estimate_usage,
)
from cenote_security.errors import UsageError

KEY = "sk-very-secret-0123456789"
PROMPT = [Message.system("Be brief."), Message.user("Grüße?")]
TEXT = "Grüße, 🌍! ```python\nx = 1\n```"
Connect = Callable[[OpenAIServer], Model]


def openai_server(server: OpenAIServer, naps: Naps) -> Model:
    return OpenAIServerModel(
        "fake",
        api_key=KEY,
        base_url=server.url,
        trust_env=False,
        idle_timeout=PATIENCE,
        retry=RetryPolicy(attempts=3),
        waits=naps.waits,
        temperature=0.5,
    )


def litellm(server: OpenAIServer, naps: Naps) -> Model:
    return LiteLLMModel(
        "fake",
        api_key=KEY,
        custom_llm_provider="openai",
        api_base=server.url,
        idle_timeout=PATIENCE,
        retry=RetryPolicy(attempts=3),
        waits=naps.waits,
        temperature=0.5,
    )


@pytest.fixture(params=[openai_server, litellm], ids=["openai_server", "litellm"])
def connect(request: pytest.FixtureRequest, naps: Naps, monkeypatch: pytest.MonkeyPatch) -> Connect:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return lambda server: request.param(server, naps)


async def collect(model: Model, into: list[ModelChunk] | None = None) -> list[ModelChunk]:
    received = [] if into is None else into
    async for chunk in model.stream(PROMPT):
        received.append(chunk)
    return received


def text_of(chunks: list[ModelChunk]) -> str:
    return "".join(chunk for chunk in chunks if isinstance(chunk, str))


async def test_an_answer_arrives_in_pieces_and_as_a_turn(connect: Connect) -> None:
    """The deltas join to the text of the turn, which is last and carries the server's report."""
    with OpenAIServer([answer(TEXT, report=usage(10, 2, cached=4))]) as server:
        *deltas, turn = await collect(connect(server))
    assert ModelTurn(TEXT, "stop", TokenUsage(10, 4, 2)) == turn
    assert (2, TEXT) == (len(deltas), text_of(deltas))


@pytest.mark.parametrize(
    "reply",
    [
        refusal(401, {"error": {"message": "no"}}),
        Reply(headers={"content-type": "application/json"}, parts=(b'{"status": "ok"}',)),
        Reply(headers={"content-type": "text/html"}, parts=(b"<!doctype html><html></html>",)),
        stream(b"data: {\n\n"),
        stream(delta("The answ"), ending="drop"),
        stream(event({"error": {"message": "broken", "code": 400}})),
    ],
    ids=["refused", "no answer", "a web page", "no JSON", "broken off", "an error in the stream"],
)
async def test_an_error_names_the_address(connect: Connect, reply: Reply) -> None:
    """Once, of whatever kind it is: with servers on one's own machine a wrong address is the usual cause."""
    with OpenAIServer([reply] * 3) as server, pytest.raises(ModelError) as caught:
        await connect(server).complete(PROMPT)
    assert 1 == str(caught.value).count(server.url), str(caught.value)


async def test_the_request_is_what_the_api_asks_for(connect: Connect) -> None:
    """Messages, parameters and the key; streamed, with usage, and on the documented path."""
    with OpenAIServer([answer("ok")]) as server:
        await connect(server).complete(PROMPT)
    (request,) = server.requests
    assert "/v1/chat/completions" == request.path
    assert f"Bearer {KEY}" == request.headers["authorization"]
    assert {
        "model": "fake",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
    } == request.body


async def test_a_stream_cut_at_every_byte_is_the_same(connect: Connect) -> None:
    """Networks split at any point, inside characters, too."""
    with OpenAIServer([bytewise(answer(TEXT, report=usage(10, 2)))]) as server:
        *deltas, turn = await collect(connect(server))
    assert ModelTurn(TEXT, "stop", TokenUsage(10, 0, 2)) == turn
    assert TEXT == text_of(deltas)


async def test_absent_usage_is_counted(connect: Connect) -> None:
    """It is marked as our estimate."""
    with OpenAIServer([answer(TEXT)]) as server:
        turn = await connect(server).complete(PROMPT)
    assert turn.usage.estimated
    assert estimate_usage(PROMPT, TEXT, "fake") == turn.usage


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_the_finish_reason_passes_through(connect: Connect, reason: str) -> None:
    """An agent recovers from a truncated answer only if it knows about it."""
    with OpenAIServer([answer(TEXT, reason=reason)]) as server:
        assert reason == (await connect(server).complete(PROMPT)).finish_reason


async def test_reasoning_is_no_part_of_the_answer(connect: Connect) -> None:
    """It comes in a separate member, before the text."""
    thinking = delta("", reasoning_content="The user greets me.")
    with OpenAIServer([stream(thinking, delta("Hi"), finish(), DONE)]) as server:
        assert ["Hi"] == (await collect(connect(server)))[:-1]


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning"])
async def test_reasoning_is_given_to_those_who_ask(connect: Connect, member: str) -> None:
    """As pieces of a separate kind, in order; servers have two names for it."""
    parts = [delta("", **{member: "Let me "}), delta("", **{member: "see."}), delta("Hi"), finish(), DONE]
    with OpenAIServer([stream(*parts)]) as server:
        chunks = [chunk async for chunk in connect(server).stream_with_reasoning(PROMPT)]
    *pieces, last = [chunk for chunk in chunks if not isinstance(chunk, ModelTurn)]
    assert ("Let me see.", "Hi") == ("".join(piece.text for piece in pieces), last)  # type: ignore[union-attr]


async def test_a_refusal_is_the_turn_and_no_piece_of_text(connect: Connect) -> None:
    """It may quote code, which must not be taken for an answer."""
    quoted = "I can't help with\n```python\nx = 1\n```"
    parts = [delta("", refusal=quoted[:10]), delta("", refusal=quoted[10:]), finish(), DONE]
    with OpenAIServer([stream(*parts)]) as server:
        *deltas, turn = await collect(model := connect(server))
    assert [] == deltas
    if isinstance(model, OpenAIServerModel):  # LiteLLM drops it and leaves an empty answer
        assert ModelTurn(quoted, "refusal", turn.usage) == turn  # type: ignore[union-attr]


async def test_a_call_of_a_tool_is_text(connect: Connect) -> None:
    """Servers parse it from a model's text, although no tool was offered: nothing of it may be lost."""
    calls = [
        {"index": 0, "id": "1", "type": "function", "function": {"name": "python", "arguments": '{"code"'}}
    ]
    more = [{"index": 0, "function": {"arguments": ': "x = 1"}'}}]
    parts = [delta("", tool_calls=calls), delta("", tool_calls=more), finish("tool_calls"), DONE]
    with OpenAIServer([stream(*parts)]) as server:
        *deltas, turn = await collect(connect(server))
    said = '<tool_call>\n{"name": "python", "arguments": {"code": "x = 1"}}\n</tool_call>'
    assert (said, said, "tool_calls") == (text_of(deltas).strip(), turn.text.strip(), turn.finish_reason)  # type: ignore[union-attr]


EMPTY_DELTA = delta("", role="assistant")


@pytest.mark.sweep
@pytest.mark.parametrize(
    "idle", [b": ping\n\n", EMPTY_DELTA, event({"choices": []})], ids=["comment", "delta", "none"]
)
@pytest.mark.parametrize("begun", [False, True])
async def test_keep_alives_are_no_piece_of_an_answer(
    monkeypatch: pytest.MonkeyPatch, idle: bytes, begun: bool
) -> None:
    """Proxies send them while the model hangs."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    said = [delta("Half")] if begun else []
    for make in (OpenAIServerModel, LiteLLMModel):
        names = {"custom_llm_provider": "openai"} if make is LiteLLMModel else {}
        with OpenAIServer([stream(*said, ending="ping", idle=idle)]) as server:
            asked = make(
                "fake", KEY, base_url=server.url, idle_timeout=0.3, retry=RetryPolicy(attempts=1), **names
            )
            with pytest.raises((ModelUnavailableError, ModelInterruptedError), match="idle_timeout"):
                await asked.complete(PROMPT)


@pytest.mark.parametrize("make", [OpenAIServerModel, LiteLLMModel])
async def test_a_server_that_never_answers_is_too_late_by_an_option(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., Model]
) -> None:
    """The error names the option whose time has passed, whatever the library in between says."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    names = {"custom_llm_provider": "openai"} if make is LiteLLMModel else {}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        asked = make("fake", KEY, base_url=url, idle_timeout=0.05, retry=RetryPolicy(attempts=1), **names)
        with pytest.raises(ModelUnavailableError, match=r"for 0.05 s \(idle_timeout\)"):
            await asked.complete(PROMPT)


class _Unclosable:
    """An answer whose connection cannot be closed."""

    def __init__(self, *chunks: ModelChunk, error: Exception | None = None) -> None:
        self._chunks, self._error = iter(chunks), error

    def __aiter__(self) -> _Unclosable:
        return self

    async def __anext__(self) -> ModelChunk:
        for item in self._chunks:
            return item
        raise self._error or StopAsyncIteration

    async def aclose(self) -> None:
        raise OSError("the socket is gone")


class _Own(Model):
    def __init__(self, answer: _Unclosable) -> None:
        self._answer = answer

    def stream(self, messages: object) -> _Unclosable:
        return self._answer


async def test_a_failure_of_closing_loses_no_answer() -> None:
    """The answer had already arrived."""
    turn = ModelTurn("All", "stop", TokenUsage())
    assert turn == await _Own(_Unclosable("All", turn)).complete(PROMPT)


async def test_a_failure_of_closing_hides_no_error() -> None:
    """The caller must see the first error."""
    with pytest.raises(ModelResponseError, match="first"):
        await _Own(_Unclosable("Half", error=ModelResponseError("first"))).complete(PROMPT)


async def test_a_call_that_hangs_while_it_is_closed_loses_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is abandoned after a while."""

    class Hanging(_Unclosable):
        async def aclose(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr("cenote.models.base.CLOSE_TIMEOUT", 0.01)
    turn = ModelTurn("All", "stop", TokenUsage())
    assert turn == await asyncio.wait_for(_Own(Hanging("All", turn)).complete(PROMPT), PATIENCE)


async def test_a_response_that_cannot_be_closed_loses_no_answer(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same holds for its client."""
    import httpx

    closed = httpx.Response.aclose

    async def failing(response: httpx.Response) -> None:
        await closed(response)
        raise httpx.CloseError("the connection is gone")

    monkeypatch.setattr(httpx.Response, "aclose", failing)
    with OpenAIServer([answer(TEXT)]) as server:
        assert TEXT == (await connect(server).complete(PROMPT)).text
    with OpenAIServer([refusal(400, {"error": {"message": "no, because"}})]) as server:
        model = connect(server)
        if isinstance(model, OpenAIServerModel):  # OpenAI's own client, which LiteLLM uses, hides it
            with pytest.raises(ModelRequestError, match="no, because"):
                await model.complete(PROMPT)


async def test_retry_after_is_waited_for(connect: Connect, naps: Naps) -> None:
    """The server's time, plus the random part that separates clients."""
    busy = refusal(429, headers={"retry-after": "7"})
    with OpenAIServer([busy, answer(TEXT)]) as server:
        assert TEXT == (await connect(server).complete(PROMPT)).text
    assert [7.5] == naps.taken
    assert 2 == len(server.requests)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "reply",
    [
        refusal(500),
        refusal(503, b"busy", headers={"content-type": "text/plain"}),
        refusal(502, b"<html><h1>Bad gateway</h1></html>", headers={"content-type": "text/html"}),
        stream(ending="drop"),
    ],
    ids=["500", "text", "page", "drop"],
)
async def test_a_server_that_fails_is_asked_again_and_then_given_up(
    connect: Connect, naps: Naps, reply: Reply
) -> None:
    """As often as the policy says, with our retries only; for any body of the error."""
    with (
        OpenAIServer([reply] * 4) as server,
        pytest.raises(ModelUnavailableError, match="gave up after 3 attempts"),
    ):
        await connect(server).complete(PROMPT)
    assert 3 == len(server.requests)
    assert [0.5, 1.0] == naps.taken


async def test_a_server_that_comes_back_is_heard(connect: Connect) -> None:
    """The answer of the successful attempt, whole and once."""
    with OpenAIServer([refusal(500), stream(ending="drop"), answer(TEXT)]) as server:
        assert TEXT == text_of(await collect(connect(server)))


async def test_a_connection_dropped_in_the_middle_is_an_interruption(connect: Connect, naps: Naps) -> None:
    """Delivered text stays delivered, the error reports it, and nothing is requested again."""
    received: list[ModelChunk] = []
    with (
        OpenAIServer([stream(delta("Half of "), delta("it"), ending="drop"), answer("x")]) as server,
        pytest.raises(ModelInterruptedError) as caught,
    ):
        await collect(connect(server), received)
    assert "Half of it" == caught.value.partial == text_of(received)
    assert 1 == len(server.requests)
    assert [] == naps.taken


async def test_a_connection_lost_after_the_finish_loses_nothing(connect: Connect) -> None:
    """The finish reason says that the text is complete."""
    with OpenAIServer([stream(delta("All of it"), finish(), ending="drop")]) as server:
        turn = await connect(server).complete(PROMPT)
    assert ("All of it", "stop", True) == (turn.text, turn.finish_reason, turn.usage.estimated)


async def test_an_error_event_in_the_stream_is_an_interruption(connect: Connect) -> None:
    """Servers that fail after status 200 send the error as a chunk."""
    failed = event({"error": {"message": "overloaded", "code": 503}})
    with (
        OpenAIServer([stream(delta("Hi"), failed, DONE)]) as server,
        pytest.raises(ModelInterruptedError, match="overloaded"),
    ):
        await connect(server).complete(PROMPT)


@pytest.mark.parametrize("bad", [b"data: {oops\n\n", event([1, 2]), event({"choices": "?"})])
async def test_malformed_chunks_are_named(connect: Connect, bad: bytes) -> None:
    """Nothing is guessed, nothing is requested again."""
    with (
        OpenAIServer([stream(bad, finish(), DONE), answer("x")]) as server,
        pytest.raises(ModelResponseError),
    ):
        await connect(server).complete(PROMPT)
    assert 1 == len(server.requests)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refusal_is_final_and_says_why(connect: Connect, status: int) -> None:
    """In the server's words."""
    refused = refusal(status, {"error": {"message": "no, because", "type": "t"}})
    with (
        OpenAIServer([refused, answer("x")]) as server,
        pytest.raises(ModelRequestError, match="no, because") as caught,
    ):
        await connect(server).complete(PROMPT)
    assert status == caught.value.status
    assert 1 == len(server.requests)


async def test_a_spent_quota_is_final(connect: Connect) -> None:
    """It differs from a rate limit only by its code."""
    refused = refusal(429, {"error": {"message": "pay", "code": "insufficient_quota"}})
    with (
        OpenAIServer([refused, answer("x")]) as server,
        pytest.raises(ModelRequestError, match="insufficient_quota"),
    ):
        await connect(server).complete(PROMPT)
    assert 1 == len(server.requests)


async def test_a_prompt_that_is_too_long_is_told_apart(connect: Connect) -> None:
    """The agent compacts its history and tries again; it cannot fix any other refusal."""
    message = "This model's maximum context length is 10 tokens."
    refused = refusal(400, {"error": {"message": message, "code": "context_length_exceeded"}})
    with (
        OpenAIServer([refused]) as server,
        pytest.raises(ContextLengthError, match="maximum context length is 10"),
    ):
        await connect(server).complete(PROMPT)


async def test_a_server_without_stream_options_is_asked_without(connect: Connect, naps: Naps) -> None:
    """At once, and for later calls."""
    refused = refusal(400, {"error": {"message": "Unrecognized request argument: stream_options"}})
    with OpenAIServer([refused, answer("one"), answer("two")]) as server:
        model = connect(server)
        assert ["one", "two"] == [(await model.complete(PROMPT)).text for _ in range(2)]
    assert [True, False, False] == ["stream_options" in request.body for request in server.requests]
    assert [] == naps.taken


@pytest.mark.parametrize(
    "reply",
    [
        refusal(401, {"error": {"message": f"Incorrect API key: {KEY}", "code": KEY}}),
        refusal(500, f"<html>{KEY}</html>".encode()),
        stream(b"data: " + KEY.encode() + b"\n\n"),
        stream(event({"error": {"message": KEY, "code": KEY}})),
        stream(delta("Hi"), event({"error": {"message": KEY, "code": 500}})),
    ],
    ids=["refusal", "page", "malformed", "event", "interruption"],
)
async def test_a_key_that_the_server_echoes_is_not_shown(connect: Connect, reply: Reply) -> None:
    """Neither in the error, nor in its causes, as far as a traceback prints."""
    with OpenAIServer([reply] * 3) as server, pytest.raises(ModelError) as caught:
        await connect(server).complete(PROMPT)
    error: BaseException | None = caught.value
    while error is not None:
        assert KEY not in f"{error} {error!r} {vars(error)}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


async def test_closing_the_stream_hangs_up(connect: Connect) -> None:
    """An agent that has its code block does not pay for the rest."""
    with OpenAIServer([stream(delta("first"), delta("second"), ending="stall")]) as server:
        async with aclosing(connect(server).stream(PROMPT)) as chunks:
            assert "first" == await anext(chunks)
        assert await asyncio.to_thread(server.hung_up.wait, PATIENCE)


async def test_cancelling_the_task_hangs_up(connect: Connect) -> None:
    """As a timeout around a turn does."""
    with OpenAIServer([stream(delta("first"), ending="stall")]) as server:
        chunks = connect(server).stream(PROMPT)
        assert "first" == await anext(chunks)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(chunks), 0.05)
        assert await asyncio.to_thread(server.hung_up.wait, PATIENCE)


async def test_answers_run_side_by_side(connect: Connect) -> None:
    """One model serves several agents at once."""
    with OpenAIServer([bytewise(answer(TEXT)) for _ in range(4)]) as server:
        model = connect(server)
        turns = await asyncio.gather(*(model.complete(PROMPT) for _ in range(4)))
    assert [TEXT] * 4 == [turn.text for turn in turns]


def test_one_model_serves_one_event_loop_after_the_other(connect: Connect) -> None:
    """Each synchronous run has its own loop, and new loops get the addresses of old ones."""
    with OpenAIServer([answer(TEXT)] * 5) as server:
        model = connect(server)
        assert [TEXT] * 5 == [asyncio.run(model.complete(PROMPT)).text for _ in range(5)]


async def test_nothing_is_sent_before_the_first_item_is_asked_for(connect: Connect) -> None:
    """A stream that is made and not read costs nothing."""
    with OpenAIServer([answer(TEXT)]) as server:
        async with aclosing(connect(server).stream(PROMPT)):
            assert [] == server.requests


async def test_an_unreachable_server_is_unavailable(connect: Connect) -> None:
    """No server listens there any more, and no other process can: a free port may be taken by any process."""
    with OpenAIServer([]) as server:
        model = connect(server)
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(server.address)
        with pytest.raises(ModelUnavailableError, match="gave up after 3 attempts"):
            await model.complete(PROMPT)


@pytest.mark.parametrize("given", [None, "", " ", 5])
def test_a_model_has_a_name(given: object) -> None:
    """An unset variable is reported where the model is made, not by a provider's error later."""
    with pytest.raises(UsageError, match=r"model_id is the name of a model, such as .openai/gpt-5., not"):
        LiteLLMModel(model_id=given)  # type: ignore[arg-type]
