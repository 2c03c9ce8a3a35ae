"""`cenote runtime fork`, and branches in lists, over a platform without Ray."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.gateway.world import World

from cenote.cli.main import main

Cenote = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cenote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Cenote]:
    """The command of a user of a platform with a runtime `etl`, in which two steps have run."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with closing(World(tmp_path)) as world:
        monkeypatch.setenv("CENOTE_TOKEN", world.user("acme").token)

        def run(*arguments: str) -> tuple[int, str, str]:
            capsys.readouterr()
            status = main(["runtime", *arguments, "--address", world.address])
            return status, *capsys.readouterr()

        assert 0 == run("create", "etl", "--memory", "512MiB")[0]
        for code in ("x = 6", "x = 7"):
            assert 0 == run("exec", "etl", "-c", code)[0]
        yield run


@pytest.mark.slow
def test_branches_are_made_and_listed(cenote: Cenote) -> None:
    """With the requested names, each from the requested state; lists and `show` name the parent."""
    made = json.loads(cenote("fork", "etl", "--count", "2", "--as", "try", "--json")[1])
    assert [("try-1", "etl", 2), ("try-2", "etl", 2)] == [
        (one["name"], one["parent"], one["parent_step"]) for one in made
    ]
    status, line, _ = cenote("fork", "etl", "--step", "1", "--deterministic")
    assert (0, "etl-fork-1") == (status, line.split()[0])
    assert line.endswith("the state of etl after step 1\n")
    assert ["7\n", "6\n"] == [cenote("exec", name, "-c", "x")[1] for name in ("try-2", "etl-fork-1")]
    listed = {row[0]: row[-2] for row in map(str.split, cenote("ls")[1].splitlines()) if row[0] != "etl"}
    assert {"name": "parent", "try-1": "etl", "try-2": "etl", "etl-fork-1": "etl"} == listed
    shown = json.loads(cenote("show", "etl-fork-1", "--json")[1])
    assert ("etl", 1) == (shown["parent"], shown["parent_step"])


def test_what_cannot_be_forked(cenote: Cenote) -> None:
    """A usage error with a message; no branch is made."""
    for words, said in (
        (("etl", "--count", "0"), "at least one"),
        (("etl", "--step", "nowhere"), "no snapshot"),
        (("etl", "--as", "etl"), "already"),
        (("nobody",), "nobody"),
    ):
        status, _, err = cenote("fork", *words)
        assert (2, True) == (status, said in err), err
    assert ["etl"] == [one["name"] for one in json.loads(cenote("ls", "--json")[1])]
