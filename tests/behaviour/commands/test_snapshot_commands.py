"""`cenote runtime snapshot|rollback|show`, over a platform without Ray."""

from __future__ import annotations

import json

import pytest
from tests.behaviour.commands.test_history_commands import Cenote, cenote

__all__ = ["cenote"]


@pytest.mark.slow
def test_there_and_back(cenote: Cenote) -> None:
    """A label and a step both name a target; another process then has the state."""
    assert {"step": 2, "label": "clean"} == json.loads(
        cenote("snapshot", "etl", "--label", "clean", "--json")[1]
    )
    assert 0 == cenote("exec", "etl", "-c", "x = 'changed'")[0]
    assert "back at the end of step 2\n" == cenote("rollback", "etl", "clean")[1]
    assert 3 == json.loads(cenote("rollback", "etl", "3", "--json")[1])["step"]
    assert 0 == cenote("rollback", "etl", "2")[0]
    assert "6\n" == cenote("exec", "etl", "-c", "x")[1]


def test_what_is_kept_is_shown(cenote: Cenote) -> None:
    """With its cost."""
    assert "the state after step 2 is kept as 'clean'\n" == cenote("snapshot", "etl", "--label", "clean")[1]
    kept = json.loads(cenote("show", "etl", "--json")[1])["snapshots"]
    assert [(2, "clean")] == [(one["step"], one["label"]) for one in kept if one["label"]]
    assert all((one["memory"] > 0) == (one["step"] > 0) for one in kept)  # the beginning is made again
    (line,) = (line for line in cenote("show", "etl")[1].splitlines() if "clean" in line)
    assert ["kept", "after", "step", "2,"] == line.split()[:4]
    assert ["MiB", "clean"] == line.split()[-2:]


def test_variables_are_shown(cenote: Cenote) -> None:
    """As the history has them, with the author of each; text of a jail cannot write to the terminal."""
    assert (
        0
        == cenote("exec", "etl", "-c", "rows = [1, 2]\nclass C: pass\nC.__qualname__ = '\\x1b[2J'\nc = C()")[
            0
        ]
    )
    known = {one["name"]: one for one in json.loads(cenote("show", "etl", "--json")[1])["variables"]}
    assert ("list", 3) == (known["rows"]["type"], known["rows"]["step"])
    lines = cenote("show", "etl")[1]
    assert "variable         rows: list" in lines
    assert "\x1b" not in lines


def test_what_has_run_nothing_has_nothing_kept(cenote: Cenote) -> None:
    """It is not started for the question."""
    cenote("create", "idle")
    assert [] == json.loads(cenote("show", "idle", "--json")[1])["snapshots"]


@pytest.mark.parametrize("target", ["99", "nowhere"])
def test_what_is_not_kept(cenote: Cenote, target: str) -> None:
    """A usage error; the state is unchanged."""
    status, _, err = cenote("rollback", "etl", target)
    assert 2 == status
    assert "no snapshot" in err
