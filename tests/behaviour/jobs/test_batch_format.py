"""Files of OpenAI's batch API: what becomes of each kind of request, what is refused, what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.workshop import BARE
from tests.support.orchestrator.studio import Studio
from tests.waiting import PATIENCE

from cenote.cli.main import main
from cenote.jobs import BadTasksError, TaskError, TaskResult, batch_line, read_batch
from cenote.jobs.checks import TaskCheck
from cenote.jobs.source import tasks_of
from cenote_security.errors import UsageError


def request(
    name: str, content: Any = "Hello", url: str = "/v1/chat/completions", **body: Any
) -> dict[str, Any]:
    given = (
        {"input": content}
        if url.endswith("responses")
        else {"messages": [{"role": "user", "content": content}]}
    )
    return {"custom_id": name, "method": "POST", "url": url, "body": {"model": "m", **given, **body}}


def test_requests_become_tasks(tmp_path: Path) -> None:
    """One message is the task; several keep their roles. Blank lines are skipped, as in other files of tasks."""
    lines = [request("one"), request("two", [{"type": "text", "text": "Hi"}])]
    two = {"role": "assistant", "content": "Yes?"}
    lines.append(request("three"))
    lines[2]["body"]["messages"] = [
        {"role": "system", "content": "Be brief."},
        two,
        *lines[2]["body"]["messages"],
    ]
    file = tmp_path / "batch.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)))
    batch = read_batch(file)
    assert [("one", "Hello"), ("two", "Hi")] == [(task["id"], task["task"]) for task in batch.tasks[:2]]
    assert "[system]\nBe brief.\n\n[assistant]\nYes?\n\n[user]\nHello" == batch.tasks[2]["task"]
    assert ("m", {}, "chat") == (batch.model, batch.parameters, batch.endpoint)
    assert 3 == sum(len(part.tasks) for part in tasks_of(batch.tasks, TaskCheck((), has_model=True)))


def test_parameters_are_those_of_the_model() -> None:
    """Under the names of a ModelSpec; what a request without them means is nothing."""
    url = "/v1/responses"
    body = {
        "max_output_tokens": 5,
        "reasoning": {"effort": "low"},
        "n": 1,
        "stream": False,
        "metadata": {"a": "b"},
    }
    batch = read_batch([request("one", url=url, instructions="Be brief.", **body)])
    assert {"max_tokens": 5, "reasoning_effort": "low"} == batch.parameters
    assert ("responses", "[system]\nBe brief.\n\n[user]\nHello") == (batch.endpoint, batch.tasks[0]["task"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (request("x", tools=[{"type": "function"}]), "its body has 'tools'"),
        (request("x", n=2), "its body has 'n'"),
        (request("x", [{"type": "image_url", "image_url": {"url": "u"}}]), "no images"),
        (request("x", url="/v1/embeddings"), "not POST /v1/embeddings"),
        ({**request("x"), "method": "GET"}, "not GET"),
        ({**request("x"), "custom_id": 5}, 'no "custom_id"'),
        ({**request("x"), "body": []}, 'no "body"'),
        ({**request("x"), "body": {"model": "m", "messages": []}}, "no messages"),
        ({**request("x"), "body": {"messages": [{"role": "tool", "content": "x"}]}}, "its messages are of"),
        (request("x", model="other"), '"model" is not that of line 1'),
        (request("x", temperature=1), "set of parameters is not that of line 1"),
        (request("x", url="/v1/responses"), '"url" is not that of line 1'),
        ("text", "it is no object"),
    ],
)
def test_lines_that_are_refused(line: Any, said: str) -> None:
    """Each with its line and its reason, and all of them at once."""
    with pytest.raises(BadTasksError, match="2 of the tasks cannot be run") as caught:
        read_batch([request("first"), line, line])
    assert [2, 3] == [bad.line for bad in caught.value.lines]
    assert said in caught.value.lines[0].reason


def test_files_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "broken").write_text("{")
    with pytest.raises(UsageError, match="at least one request"):
        read_batch(tmp_path / "empty")
    with pytest.raises(BadTasksError, match="it is no JSON"):
        read_batch(tmp_path / "broken")
    (tmp_path / "wide").write_text('{"custom_id": "a"}\n', encoding="utf-16")
    with pytest.raises(BadTasksError, match="line 1: it is no UTF-8 text, but UTF-16"):
        read_batch(tmp_path / "wide")
    with pytest.raises(UsageError, match="cannot be read"):
        read_batch(tmp_path / "missing")


def test_results_become_responses() -> None:
    """A text in its place of either form; a failure has an error with its reason, and no response."""
    error = TaskError(type="ZeroDivisionError", message="division by zero", reason="exception", stage="task")
    answered = TaskResult(index=1, id="one", status="succeeded", answer="Well.", tokens=7)
    failed = TaskResult(index=2, id="two", status="failed", error=error)
    cancelled = TaskResult(index=3, id="three", status="cancelled")
    valued = TaskResult(index=4, id="four", status="succeeded", value={"a": [1]}, answer="Done.")
    given = {"job": "jb_1", "model": "m", "created": 1.5}
    lines = [batch_line(each, endpoint="chat", **given) for each in (answered, failed, cancelled, valued)]  # type: ignore[arg-type]
    assert ["one", "two", "three", "four"] == [line["custom_id"] for line in lines]
    assert "Well." == lines[0]["response"]["body"]["choices"][0]["message"]["content"]
    assert {"code": "exception", "message": "ZeroDivisionError: division by zero"} == lines[1]["error"]
    assert (None, "cancelled") == (lines[2]["response"], lines[2]["error"]["code"])
    assert '{"a": [1]}' == lines[3]["response"]["body"]["choices"][0]["message"]["content"]
    assert 7 == lines[0]["cenote"]["tokens"]
    response = batch_line(answered, endpoint="responses", **given)["response"]["body"]  # type: ignore[arg-type]
    assert "Well." == response["output"][0]["content"][0]["text"]


def test_by_command(studio: Studio, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A batch file in, a batch file out, also once more from the job."""
    studio.models.script(m=["Well."])
    file, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    file.write_text("\n".join(json.dumps(request(name)) for name in ("b", "a")))
    where = ["--address", studio.address]
    command = ["job", "submit", str(file), "--batch", "--base-url", studio.models.url, "--output", str(out)]
    assert 0 == main([*command, "--name", "batch", "--memory", str(BARE.memory), *where])
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [("b", "Well."), ("a", "Well.")] == [
        (line["custom_id"], line["response"]["body"]["choices"][0]["message"]["content"]) for line in lines
    ]
    capsys.readouterr()
    assert 0 == main(["job", "results", "batch", "--batch", *where])
    assert lines == [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    job = studio.connect().jobs.get("batch")
    assert "m" == job.wait(PATIENCE).model
    job.remove()
