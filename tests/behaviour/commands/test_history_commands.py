"""`cenote runtime history|graph|blame|diff`, over a platform without Ray."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.remote.small_platform import TOKEN, SmallPlatform

from cenote.cli.main import main

Cenote = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cenote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Cenote]:
    """The command of a user of a small platform with a runtime `etl`, in which two steps have run."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("CENOTE_TOKEN", TOKEN)
    platform = SmallPlatform().start()

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["runtime", *arguments, "--address", platform.address])
        return status, *capsys.readouterr()

    assert 0 == run("create", "etl")[0]
    assert 0 == run("exec", "etl", "-c", "x = 6\nprint('hello')")[0]
    assert 1 == run("exec", "etl", "-c", "1 / 0")[0]
    yield run
    platform.close()


def test_steps_of_other_clients(cenote: Cenote) -> None:
    """A user with a right to the runtime reads the steps of all of its clients."""
    status, out, _ = cenote("history", "etl")
    assert (0, 2) == (status, len(out.splitlines()))
    assert ["ok", "failed"] == [line.split()[2] for line in out.splitlines()]
    steps = json.loads(cenote("history", "etl", "--json")[1])
    assert [("x = 6\nprint('hello')", "hello\n"), ("1 / 0", "")] == [
        (step["code"], step["stdout"]) for step in steps
    ]


def test_a_graph_in_three_formats(cenote: Cenote) -> None:
    """Text for other programs, printed unchanged."""
    assert cenote("graph", "etl")[1].startswith("flowchart TD\n")
    assert cenote("graph", "etl", "--format", "dot")[1].startswith("digraph history {\n")
    assert [0, 1, 2] == [node["id"] for node in json.loads(cenote("graph", "etl", "--json")[1])["nodes"]]


def test_a_picture_of_the_graph(cenote: Cenote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the latest steps, in `show`, without colours in a pipe; of all, as a format."""
    assert 0 == cenote("exec", "etl", "-c", "y = x + 1")[0]
    picture = ["[1]─┐ x = 6", "[2] │ 1 / 0", "[3]─┘ y = x + 1  <- x"]
    assert picture == cenote("show", "etl")[1].splitlines()[-3:]
    _, out, _ = cenote("graph", "etl", "--format", "text")
    assert picture[2] == out.splitlines()[-1]
    assert "\x1b" not in out
    monkeypatch.setattr("cenote.cli.platform.runtime_states._SHOWN", 2)
    shown = cenote("show", "etl")[1].splitlines()[-3:]
    assert ["steps after 1 earlier one, and what they took from each other:", "[2]  1 / 0"] == shown[:2]
    assert "[3]  y = x + 1  <- x of 1" == shown[2]
    monkeypatch.setenv("COLUMNS", "12")
    assert "[3]  y = x …" == cenote("show", "etl")[1].splitlines()[-1]


def test_blame_and_diff(cenote: Cenote) -> None:
    """As the state answers; an impossible question is a usage error."""
    blame = json.loads(cenote("blame", "etl", "x", "--json")[1])
    assert "x" == blame["symbol"]
    diff = json.loads(cenote("diff", "etl", "0", "2", "--json")[1])
    assert ([], [1, 2]) == (diff["left"], [step["number"] for step in diff["right"]])
    for question in (("blame", "etl", "x"), ("diff", "etl", "0", "2")):
        status, out, _ = cenote(*question)
        assert (0, True) == (status, bool(out))
    status, _, err = cenote("diff", "etl", "0", "99")
    assert (2, True) == (status, "there is no step '99'" in err)


def test_a_runtime_that_is_not_there(cenote: Cenote) -> None:
    """A question does not create it."""
    assert 2 == cenote("history", "nothing")[0]
    assert 2 == cenote("history", "nothing")[0]
