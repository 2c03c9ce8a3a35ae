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
    assert {"type": "final_response", "content": "Hello."} == events[-1]
    assert "Hello." == "".join(event["content"] for event in events if event["type"] == "text")


def test_running_out_of_steps_is_status_1(run: Cenote) -> None:
    """An agent that does not come to an answer has failed."""
    done = run([answer("```python\nprint(1)\n```")] * 2, "Never end", "--max-steps", "2")
    assert 1 == done.returncode
    assert "--- out of steps" in done.stdout


def test_a_model_that_refuses_is_one_line(run: Cenote) -> None:
    """The server's words, no stack trace, and never the key."""
    done = run([refusal(401, {"error": {"message": "no such account", "type": "auth"}})] * 3, "Hello")
    assert 0 != done.returncode
    assert "no such account" in done.stderr
    assert "Traceback" not in done.stderr
    assert "not-a-key" not in done.stdout + done.stderr
