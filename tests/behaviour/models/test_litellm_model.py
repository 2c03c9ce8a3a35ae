"""Behaviour of the LiteLLM model only: it keeps LiteLLM quiet, offline and accurate."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.fakes.openai_server import DONE, OpenAIServer, Reply, answer, delta, finish, refusal, stream

from cenote.models import (
    LiteLLMModel,
    Message,
    ModelError,
    ModelInterruptedError,
    ModelRequestError,
    ModelResponseError,
    ModelUnavailableError,
    RetryPolicy,
)
from cenote_security.errors import UsageError

PROMPT = [Message.user("Hi")]
KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def model(url: str, **arguments: object) -> LiteLLMModel:
    return LiteLLMModel(
        "fake",
        KEY,
        "openai",
        api_base=url,
        retry=RetryPolicy(attempts=1),
        **arguments,  # type: ignore[arg-type]
    )


SCRIPT = """
import asyncio, sys

contacted = set()
def note(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        contacted.add(str(args[1][:2]))
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        contacted.add(f"{event} {args}")
sys.addaudithook(note)

from cenote.models import LiteLLMModel, Message, ModelError, RetryPolicy
from cenote.models.litellm_library import load

load()
assert not contacted, contacted

async def main(url, name):
    model = LiteLLMModel(name, "sk-1234567", "openai", api_base=url, retry=RetryPolicy(attempts=1))
    print((await model.complete([Message.user("Hi")])).text)
    try:
        await model.complete([Message.user("Hi")])
    except ModelError as error:
        print(type(error).__name__)
    async for chunk in model.stream([Message.user("Hi")]):
        print(chunk)
        break

for name in sys.argv[2:]:
    asyncio.run(main(sys.argv[1], name))
print(*contacted)
"""


@pytest.mark.slow
def test_litellm_is_quiet_and_contacts_nobody_but_the_server() -> None:
    """No price map, no tokenizer, no advertisement, no log line: for an answer, an error and a closed stream, of a
    known and of an unknown model."""
    roots = [str(Path(__file__).resolve().parents[3] / root) for root in ("platform", "workers", "security")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(roots)}
    for name in ("LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "LITELLM_LOG"):
        environment.pop(name, None)
    scenario = [answer("ok"), refusal(500), stream(delta("first"), ending="stall")] * 2
    with OpenAIServer(scenario) as server:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, server.url, "gpt-4.1", "llama-3-8b"],
            capture_output=True,
            text=True,
            timeout=100,
            env=environment,
        )
        port = server.url.split(":")[2].split("/")[0]
    expected = ["ok\nModelUnavailableError\nfirst\n" * 2 + f"('127.0.0.1', {port})\n", ""]
    assert expected == [done.stdout, done.stderr]


@pytest.mark.parametrize("end", [(), (DONE,)], ids=["end", "done"])
async def test_a_stream_without_a_finish_reason_is_an_interrupted_answer(end: tuple[bytes, ...]) -> None:
    """The connection ended properly, but without a sign that the answer did: LiteLLM assumes `stop`."""
    with (
        OpenAIServer([stream(delta("Half"), *end)]) as server,
        pytest.raises(ModelInterruptedError, match="reason") as caught,
    ):
        await model(server.url).complete(PROMPT)
    assert "Half" == caught.value.partial


@pytest.mark.parametrize("reason", ["error", "abort", "network_error", "something new"])
async def test_a_finish_reason_that_litellm_takes_for_a_good_end_stays_as_it_was(reason: str) -> None:
    """LiteLLM turns unknown reasons into `stop`."""
    replies = [stream(delta("Half"), finish(reason), DONE)]
    # LiteLLM has its own error for some.
    with OpenAIServer(replies) as server, suppress(ModelInterruptedError):
        assert reason == (await model(server.url).complete(PROMPT)).finish_reason


@pytest.mark.parametrize("name", ["url", "base", "endpoint", "openai_api_base"])
def test_an_address_under_another_name_is_refused(name: str) -> None:
    """LiteLLM would ignore it, and call the public provider."""
    with pytest.raises(UsageError, match="api_base or base_url"):
        LiteLLMModel("m", **{name: "http://localhost:1/v1"})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["api_base", "base_url"])
def test_an_empty_address_is_refused(name: str) -> None:
    """An unset variable does not lead to a public provider."""
    with pytest.raises(UsageError, match=f"{name} is an address"):
        LiteLLMModel("m", **{name: ""})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_no_answer_at_all_is_an_error(kind: str) -> None:
    """LiteLLM turns a page or a document into an empty answer."""
    reply = Reply(headers={"content-type": kind}, parts=(b"<html></html>",))
    with OpenAIServer([reply]) as server, pytest.raises(ModelResponseError):
        await model(server.url).complete(PROMPT)


async def test_an_empty_answer_is_one_if_the_model_finished() -> None:
    """The model had nothing to say; the agent asks again."""
    with OpenAIServer([stream(finish())]) as server:
        turn = await model(server.url).complete(PROMPT)
    assert ("", "stop") == (turn.text, turn.finish_reason)


async def test_an_unknown_provider_is_a_refusal_of_litellm() -> None:
    """Nothing was sent, and waiting will not change that."""
    with pytest.raises(
        ModelRequestError, match="no provider is known for the model no-such-model-anywhere"
    ) as caught:
        await LiteLLMModel("no-such-model-anywhere", retry=RetryPolicy(attempts=1)).complete(PROMPT)
    assert "such as openai/gpt-5" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-pro", "GOOGLE_API_KEY or GEMINI_API_KEY"),
        ("azure/x", "AZURE_API_BASE and AZURE_API_VERSION and AZURE_API_KEY"),
    ],
)
async def test_a_missing_key_is_one_line(name: str, variables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each adapter of LiteLLM reports it differently, one with a traceback, one as a temporary failure."""
    for variable in {*variables.split(), "ANTHROPIC_AUTH_TOKEN"}:
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ModelRequestError) as caught:
        await LiteLLMModel(name).complete(PROMPT)
    said = f"no key for the model {name}; set {variables} in the environment, or give `api_key=`"
    assert said == str(caught.value)


async def test_a_key_that_the_server_refuses_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key from the environment was sent, so the remedy differs."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    wrong = refusal(401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}})
    with OpenAIServer([wrong]) as server, pytest.raises(ModelRequestError) as caught:
        await LiteLLMModel("openai/m", api_base=server.url).complete(PROMPT)
    assert f"{server.url}: Incorrect API key (401 invalid_api_key); check the key" in str(caught.value)


async def test_a_server_of_one_s_own_that_is_away_is_not_a_missing_key() -> None:
    """It may need no key."""
    away = LiteLLMModel("ollama/m", api_base="http://127.0.0.1:9", retry=RetryPolicy(attempts=1))
    with pytest.raises(ModelUnavailableError):
        await away.complete(PROMPT)


async def test_secret_parameters_reach_the_server_and_no_error() -> None:
    """Headers are sent, and removed from the server's echo."""
    secret = "team-secret-42"
    echo = refusal(400, {"error": {"message": f"bad {secret}"}})
    with OpenAIServer([echo]) as server, pytest.raises(ModelError) as caught:
        await model(server.url, extra_headers={"x-team": secret}).complete(PROMPT)
    assert secret == server.requests[0].headers["x-team"]
    assert secret not in str(caught.value)


@pytest.mark.parametrize("name", ["stream", "messages", "num_retries", "max_retries"])
def test_parameters_that_cenote_sets_are_refused(name: str) -> None:
    """Two layers of retries would multiply."""
    with pytest.raises(UsageError, match=name):
        LiteLLMModel("m", **{name: 1})  # type: ignore[arg-type]


async def test_undecodable_output_in_a_prompt_can_be_sent() -> None:
    """Lone surrogates have no UTF-8 form."""
    with OpenAIServer([answer("ok")]) as server:
        await model(server.url).complete([Message.user("bad: \udcff")])
    assert "bad: ?" == server.requests[0].body["messages"][0]["content"]
