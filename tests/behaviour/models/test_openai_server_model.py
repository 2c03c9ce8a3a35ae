"""Behaviour of the model with our own HTTP client only."""

from __future__ import annotations

import pytest
from tests.fakes.openai_server import DONE, OpenAIServer, Reply, answer, delta, finish, refusal, stream
from tests.support.overdue import LIMITS
from tests.waiting import PATIENCE

from cenote.models import (
    Message,
    ModelError,
    ModelInterruptedError,
    ModelRequestError,
    ModelResponseError,
    ModelUnavailableError,
    OpenAIServerModel,
    RetryPolicy,
)
from cenote_security.errors import UsageError

PROMPT = [Message.user("Hi")]
ONCE = RetryPolicy(attempts=1)
WHOLE = b'{"choices": [{"index": 0, "message": {"content": "whole"}, "finish_reason": "stop"}]}'


def model(url: str, **arguments: object) -> OpenAIServerModel:
    return OpenAIServerModel("fake", base_url=url, trust_env=False, retry=ONCE, **arguments)  # type: ignore[arg-type]


def as_json(body: bytes) -> Reply:
    return Reply(headers={"content-type": "application/json; charset=utf-8"}, parts=(body,))


async def test_without_a_key_none_is_sent() -> None:
    """Local servers need none."""
    with OpenAIServer([answer("ok")]) as server:
        await model(server.url).complete(PROMPT)
    assert "authorization" not in server.requests[0].headers


async def test_the_key_of_openai_goes_to_openai_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """`OPENAI_API_KEY` is not sent to other servers."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    with OpenAIServer([answer("ok")]) as server:
        await model(server.url).complete(PROMPT)
    assert "authorization" not in server.requests[0].headers
    assert "***" == OpenAIServerModel("gpt-4.1").redact("sk-from-the-environment")


async def test_headers_are_sent_and_win() -> None:
    """Some gateways authenticate with custom headers."""
    headers = {"X-Team": "blue-team", "Authorization": "Basic abc"}
    with OpenAIServer([answer("ok")]) as server:
        await model(server.url, api_key="sk-1234567", headers=headers).complete(PROMPT)
    sent = server.requests[0].headers
    assert ("blue-team", "Basic abc") == (sent["x-team"], sent["authorization"])


async def test_what_the_client_of_openai_takes_is_understood() -> None:
    """None of its arguments goes to the server as an unknown field."""
    with OpenAIServer([answer("ok")]) as server:
        asked = model(server.url, timeout=PATIENCE, extra_headers={"X-Team": "blue"}, extra_body={"top_k": 3})
        await asked.complete(PROMPT)
    body = server.requests[0].body
    assert ("blue", 3) == (server.requests[0].headers["x-team"], body["top_k"])
    assert {"model", "messages", "stream", "stream_options", "top_k"} == body.keys()


async def test_a_timeout_ends_a_server_that_says_nothing() -> None:
    """As `idle_timeout` does."""
    for limit in LIMITS:  # with more time if the first piece has not come by then
        silent = stream(delta("Half"), ending="stall")
        with OpenAIServer([silent]) as server, pytest.raises(ModelError, match=f"for {limit:g} s") as caught:
            await model(server.url, timeout=limit).complete(PROMPT)
        if caught.type is ModelInterruptedError:
            break
    assert caught.type is ModelInterruptedError
    with pytest.raises(UsageError, match="timeout"):
        OpenAIServerModel("m", timeout=0)


@pytest.mark.parametrize("suffix", ["", "/", "/chat/completions", "/chat/completions/"])
async def test_the_base_url_may_be_written_in_several_ways(suffix: str) -> None:
    """As each server's documentation has it."""
    with OpenAIServer([answer("ok")]) as server:
        await model(server.url + suffix).complete(PROMPT)
    assert "/v1/chat/completions" == server.requests[0].path


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://localhost/v1", "file:///etc/passwd"])
def test_a_base_url_is_one_of_the_web(url: str) -> None:
    """A forgotten scheme is the usual mistake."""
    with pytest.raises(UsageError, match="http://"):
        OpenAIServerModel("m", base_url=url)


@pytest.mark.parametrize("name", ["stream", "messages", "stream_options", "n", "max_retries"])
def test_parameters_that_cenote_sets_are_refused(name: str) -> None:
    """They would break the code that reads the answer."""
    with pytest.raises(UsageError, match=name):
        OpenAIServerModel("m", **{name: 1})  # type: ignore[arg-type]


async def test_a_server_that_does_not_stream_is_understood() -> None:
    """Some ignore `stream` and send one document."""
    with OpenAIServer([as_json(WHOLE)]) as server:
        turn = await model(server.url).complete(PROMPT)
    assert ("whole", "stop", True) == (turn.text, turn.finish_reason, turn.usage.estimated)


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b'{"choices": []}', b"[]", b'"x"'])
async def test_a_document_without_an_answer_is_named(body: bytes) -> None:
    """For any other document."""
    with OpenAIServer([as_json(body)]) as server, pytest.raises(ModelResponseError):
        await model(server.url).complete(PROMPT)


async def test_a_web_page_instead_of_an_answer_hints_at_the_url() -> None:
    """The base URL without /v1 often shows a user interface, with status 200."""
    page = Reply(headers={"content-type": "text/html"}, parts=(b"<html>Welcome</html>",))
    with OpenAIServer([page]) as server, pytest.raises(ModelResponseError, match="base URL"):
        await model(server.url).complete(PROMPT)


@pytest.mark.parametrize("kind", ["text/event-stream", "text/plain", "application/json"])
async def test_a_web_page_is_known_by_what_it_begins_with(kind: str) -> None:
    """Some servers send pages with no type, or with the requested one."""
    page = Reply(headers={"content-type": kind}, parts=(b"\n<!doctype html>", b"<html>Welcome</html>"))
    with OpenAIServer([page]) as server, pytest.raises(ModelResponseError, match="web page"):
        await model(server.url).complete(PROMPT)


@pytest.mark.parametrize("status", [403, 404])
async def test_a_refusal_that_is_a_web_page_hints_at_the_url(status: int) -> None:
    """From a proxy or a login page: the key is not the problem."""
    page = refusal(status, b"<html><h1>Sign in</h1></html>", headers={"content-type": "text/html"})
    with OpenAIServer([page]) as server, pytest.raises(ModelRequestError) as caught:
        await model(server.url).complete(PROMPT)
    said = f"Sign in ({status}); a web page came instead of an answer: check the base URL; many end in /v1"
    assert f"{server.url}: {said}" == str(caught.value)


async def test_openai_is_not_asked_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would refuse, after the conversation was sent to it."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelRequestError) as caught:
        await OpenAIServerModel("gpt-5").complete(PROMPT)
    assert "no key for the model gpt-5; set OPENAI_API_KEY" in str(caught.value)


async def test_a_redirect_is_not_followed() -> None:
    """The key would go to an address that the user did not name."""
    moved = refusal(307, headers={"location": "http://127.0.0.1:9/v1/chat/completions"})
    with OpenAIServer([moved]) as server, pytest.raises(ModelRequestError, match="307"):
        await model(server.url).complete(PROMPT)


async def test_an_orderly_end_without_a_finish_is_an_interruption() -> None:
    """A server that is shut down ends its streams properly, in the middle of a sentence."""
    with OpenAIServer([stream(delta("Half"))]) as server, pytest.raises(ModelInterruptedError) as caught:
        await model(server.url).complete(PROMPT)
    assert "Half" == caught.value.partial


@pytest.mark.parametrize("end", [DONE, b"data: [DONE]\n", finish("stop")])
async def test_each_usual_end_is_one(end: bytes) -> None:
    """Some servers send no finish reason, some no [DONE], some no last blank line."""
    with OpenAIServer([stream(delta("All"), end)]) as server:
        assert "All" == (await model(server.url).complete(PROMPT)).text


async def test_nothing_is_read_after_the_end() -> None:
    """A server may keep the connection open."""
    with OpenAIServer([stream(delta("All"), finish(), DONE, ending="stall")]) as server:
        assert "All" == (await model(server.url).complete(PROMPT)).text


async def test_a_huge_line_ends_the_answer() -> None:
    """Memory is bounded, whatever the server sends."""
    huge = (b"data: " + b"x" * 1_000_000, *[b"x" * 1_000_000] * 5)
    with (
        OpenAIServer([stream(*huge, ending="stall")]) as server,
        pytest.raises(ModelResponseError, match="line"),
    ):
        await model(server.url).complete(PROMPT)


async def test_an_endless_error_is_read_to_its_limit() -> None:
    """The beginning says enough."""
    endless = Reply(status=500, parts=(b"broken " + b"x" * 100_000,), ending="stall")
    with OpenAIServer([endless]) as server, pytest.raises(ModelUnavailableError, match="broken"):
        await model(server.url).complete(PROMPT)


@pytest.mark.parametrize("parts", [(), (delta("Hi"),)])
async def test_a_silent_server_times_out(parts: tuple[bytes, ...]) -> None:
    """Before the first piece and between two; the error names the setting."""
    with OpenAIServer([stream(*parts, ending="stall")]) as server:
        asked = model(server.url, idle_timeout=0.05)
        with pytest.raises((ModelUnavailableError, ModelInterruptedError), match="idle_timeout"):
            await asked.complete(PROMPT)


async def test_comments_keep_a_slow_server_alive() -> None:
    """Gateways send them while a model thinks."""
    with OpenAIServer([stream(*[b": wait\n\n"] * 5, delta("Hi"), finish(), DONE)]) as server:
        assert "Hi" == (await model(server.url).complete(PROMPT)).text


def test_the_address_has_the_name_that_litellm_gives_it_too() -> None:
    """`api_base`; two different addresses are refused, equal ones are accepted."""
    local = "http://localhost:11434/v1"
    assert local == OpenAIServerModel("qwen3", api_base=local).base_url
    assert local == OpenAIServerModel("qwen3", base_url=local, api_base=local).base_url
    with pytest.raises(UsageError, match="base_url and api_base name different addresses"):
        OpenAIServerModel("qwen3", base_url=local, api_base="http://localhost:8000/v1")


@pytest.mark.parametrize("name", ["base_url", "api_base"])
@pytest.mark.parametrize("address", ["", "  "])
def test_an_empty_address_is_not_openai(name: str, address: str) -> None:
    """It is an unset variable where the user's own server was meant."""
    with pytest.raises(UsageError, match=f"{name} is an address"):
        OpenAIServerModel("m", **{name: address})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("base_ulr", "did you mean base_url"),
        ("url", "did you mean base_url"),
        ("openai_api_base", "did you mean base_url"),
        ("temperature_", "did you mean temperature"),
        ("apikey", "did you mean api_key"),
        ("zzz", "extra_body"),
    ],
)
def test_an_unknown_keyword_is_refused(name: str, hint: str) -> None:
    """Otherwise it would become a parameter of the request to OpenAI."""
    with pytest.raises(UsageError, match=hint):
        OpenAIServerModel("m", **{name: "http://localhost:1/v1"})  # type: ignore[arg-type]


async def test_known_parameters_and_an_extra_body_are_sent() -> None:
    """OpenAI's, those of servers with the same interface, and those of a single server."""
    with OpenAIServer([answer("ok")]) as server:
        given = {"seed": 1, "top_k": 40, "chat_template_kwargs": {"enable_thinking": False}}
        await model(server.url, **given, extra_body={"mine": 2}, organization="o").complete(PROMPT)
    (request,) = server.requests
    assert given | {"mine": 2} == {name: request.body[name] for name in (*given, "mine")}
    assert "o" == request.headers["openai-organization"]


def test_openais_variables_name_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for OpenAI's own client, and under LiteLLM's name."""
    monkeypatch.setenv("OPENAI_API_BASE", "http://localhost:2/v1")
    assert "http://localhost:2/v1" == OpenAIServerModel("m").base_url
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    assert "http://localhost:1/v1" == OpenAIServerModel("m").base_url
    assert "http://localhost:3/v1" == OpenAIServerModel("m", base_url="http://localhost:3/v1").base_url


async def test_a_refused_request_names_the_address() -> None:
    """A model that a server does not have is often correct, but sent to the wrong server."""
    with OpenAIServer([refusal(404)]) as server, pytest.raises(ModelRequestError) as caught:
        await model(server.url).complete(PROMPT)
    assert f"{server.url}: status 404" in str(caught.value)


async def test_undecodable_output_in_a_prompt_can_be_sent() -> None:
    """Lone surrogates have no UTF-8 form."""
    with OpenAIServer([answer("ok")]) as server:
        await model(server.url).complete([Message.user("bad: \udcff")])
    assert "bad: ?" == server.requests[0].body["messages"][0]["content"]
