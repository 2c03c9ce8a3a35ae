"""Tests of `cenote run`: a real model client, over HTTP on loopback, and a real jail."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.fakes.openai_server import OpenAIServer, Reply, answer, refusal

Cenote = Callable[..., subprocess.CompletedProcess[str]]


def against(cenote: Cenote) -> Cenote:
    """`cenote run` against a server that gives these replies."""

    def run(replies: Iterable[Reply], *arguments: str) -> subprocess.CompletedProcess[str]:
        with OpenAIServer(replies) as server:
            environment = {"OPENAI_API_KEY": "not-a-key", "OPENAI_API_BASE": server.url}
            return cenote("run", *arguments, "--model", "openai/fake", **environment)

    return run


@pytest.fixture
def run(cenote_here: Cenote) -> Cenote:
    return against(cenote_here)


@pytest.mark.slow
def test_an_agent_works_on_a_file(cenote: Cenote, tmp_path: Path) -> None:
    """The file is a variable of the agent; code, output and answer are printed in order."""
    (tmp_path / "sales.csv").write_text("day,revenue\n1,10.5\n2,20.0\n")
    code = "```python\nprint(sales['revenue'].sum())\n```"
    replies = [answer(code), answer("30.5 in two days.")]
    done = against(cenote)(replies, "Add up", "--data", "sales=sales.csv")
    assert 0 == done.returncode, done.stderr
    lines = [line for line in done.stdout.splitlines() if line]
    assert ["--- code", "print(sales['revenue'].sum())", "--- output", "30.5", "30.5 in two days."] == lines


def test_events_as_json(run: Cenote) -> None:
    """`--json` gives one object per event."""
    done = run([answer("Hello.")], "Say hello", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"type": "final_response", "content": "Hello."} == events[-2]
    assert ("stopped", "completed", 1) == tuple(events[-1][name] for name in ("type", "content", "steps"))
    assert events[-1]["usage"]["completion"] > 0
    assert "Hello." == "".join(event["content"] for event in events if event["type"] == "text")


def test_a_server_of_ones_own_is_named(cenote_here: Cenote) -> None:
    """It gets the key given for it, and none from the environment."""
    with OpenAIServer([answer("Hello."), answer("Hello.")]) as server:
        named = ("run", "Say hello", "--model", "qwen3", "--base-url", server.url)
        elsewhere = {"OPENAI_API_KEY": "not-a-key", "OPENAI_API_BASE": "http://127.0.0.1:1/v1"}
        for more in ((), ("--api-key", "sk-mine")):
            done = cenote_here(*named, *more, **elsewhere)
            assert (0, "Hello.") == (done.returncode, done.stdout.strip()), done.stderr
    keys = [request.headers.get("authorization") for request in server.requests]
    assert ([None, "Bearer sk-mine"], "qwen3") == (keys, server.requests[0].body["model"])


def test_an_empty_address_is_wrong_usage(cenote_here: Cenote) -> None:
    """An unset variable of the shell does not lead to a public provider."""
    done = cenote_here("run", "Say hello", "--model", "qwen3", "--base-url", "", OPENAI_API_KEY="not-a-key")
    assert (2, True) == (done.returncode, "base_url is an address" in done.stderr)


def test_an_answer_that_was_cut_is_status_1(run: Cenote) -> None:
    """The last line says what happened."""
    done = run([answer("The total is 4", reason="content_filter")], "Add up")
    assert 1 == done.returncode
    assert "content_filter" in done.stdout


def test_running_out_of_steps_is_status_1(run: Cenote) -> None:
    """An agent without a final answer has failed."""
    done = run([answer("```python\nprint(1)\n```")] * 2, "Never end", "--max-steps", "2")
    assert 1 == done.returncode
    assert "--- out of steps" in done.stdout


def test_a_model_that_refuses_is_one_line(run: Cenote) -> None:
    """The server's message, no stack trace, and never the key."""
    done = run([refusal(401, {"error": {"message": "no such account", "type": "auth"}})] * 3, "Hello")
    assert 0 != done.returncode
    assert "no such account" in done.stderr
    assert "Traceback" not in done.stderr
    assert "not-a-key" not in done.stdout + done.stderr
