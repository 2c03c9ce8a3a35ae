"""Tests of `cenote demo`: it shows what it claims, with the script and with a model client."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.fakes.openai_server import OpenAIServer, answer

from cenote.cli.main import main
from cenote.demo import penguins, script

Cenote = Callable[..., subprocess.CompletedProcess[str]]


def check_figure(folder: Path) -> None:
    assert (folder / "demo-output" / "penguins.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.slow
def test_the_scripted_demo_shows_what_it_claims(cenote: Cenote, tmp_path: Path) -> None:
    """A refused import, a failing cell with its hint, the repair, numbers from the data, a figure, two tables.

    Then a patch that reruns its dependents, and a crash that loses nothing.
    """
    done = cenote("demo")
    assert (0, "") == (done.returncode, done.stderr)
    check_figure(tmp_path)
    claims = [
        "scripted models: their words are canned",
        "--- cleaner: refused",
        "nearest columns: 'Flipper Length (mm)'",
        "344 rows in, 333 rows out",
        "Gentoo 54.2 g per mm (r = 0.71, n = 119)",
        "figure demo-output/penguins.png",
        "cleaner -> analyst",
        "together",
        "step 5: reuse, since nothing that it depends on is different",
        "step 4 anew: {'Adelie': '33.1 g per mm', 'Chinstrap': '27.5 g per mm', 'Gentoo': '48.1 g per mm'}",
        "applied: 2 of 5 steps ran again",
        "Changed: slope, slopes",
        "the state: rolled back",
        "still there: 342 birds, 3 slopes",
    ]
    assert [] == [claim for claim in claims if claim not in done.stdout], done.stdout


@pytest.mark.slow
def test_the_demo_on_a_model(cenote_here: Cenote, tmp_path: Path) -> None:
    """With `--model` the same happens through LiteLLM, with the tokens that the server reports."""
    first, *rest = script.ORCHESTRATOR
    repair = script.repair_with("Flipper Length (mm)")
    cleaner = [line if isinstance(line, str) else repair for line in script.CLEANER]
    turns: Sequence[str] = [first, *cleaner, rest[0], *script.ANALYST, *rest[1:]]
    with OpenAIServer([answer(turn) for turn in turns]) as server:
        environment = {"OPENAI_API_KEY": "k", "OPENAI_API_BASE": server.url}
        done = cenote_here("demo", "--model", "openai/fake", **environment)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "model  the model openai/fake" in done.stdout
    assert "canned" not in done.stdout
    check_figure(tmp_path)


@pytest.mark.slow
def test_a_model_that_does_not_deliver(cenote_here: Cenote) -> None:
    """An answer without a figure is status 1, and the tables are still printed."""
    with OpenAIServer([answer("I would rather not.")]) as server:
        environment = {"OPENAI_API_KEY": "k", "OPENAI_API_BASE": server.url}
        done = cenote_here("demo", "--model", "openai/fake", **environment)
    assert 1 == done.returncode
    assert "left no figure" in done.stdout
    assert "orchestrator" in done.stdout


def test_a_folder_that_cannot_be_written(cenote_here: Cenote) -> None:
    """One line that names it, status 2; no agent has started."""
    done = cenote_here("demo", "--output", "/proc/nowhere")
    assert (2, "") == (done.returncode, done.stdout)
    assert "cannot write /proc/nowhere" in done.stderr


@pytest.mark.parametrize("said", ["KeyError: 'x'", ""])
def test_the_script_does_not_repair_without_a_hint(said: str) -> None:
    """Without the hint, the scripted cleaner would give up: the repair is real."""
    from cenote.models import Message

    turn = script.CLEANER[3]
    assert callable(turn)
    assert "give up" in turn([Message("user", said)])


def test_a_missing_library_is_named_before_anything_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with what to install, and the status for features that this machine lacks."""
    monkeypatch.setattr(penguins, "LIBRARIES", ("json", "pandas_that_is_away"))
    assert 4 == main(["demo"])
    said = (
        "cenote: error: a library of the demo is not installed here: pip install 'cenote[data]' "
        "(No module named 'pandas_that_is_away')\n"
    )
    assert ("", said) == capsys.readouterr()
