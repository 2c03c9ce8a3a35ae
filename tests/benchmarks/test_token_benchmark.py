"""The token benchmark: scripts hold in every style, and the command prints them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.tokens.cenote_style import CENOTE_STYLES
from benchmarks.tokens.code_script import ScriptBrokenError
from benchmarks.tokens.comparison import check_same_calls
from benchmarks.tokens.conversation import Conversation
from benchmarks.tokens.conversations import CONVERSATIONS
from benchmarks.tokens.json_style import JSON_STYLES
from benchmarks.tokens.style import Transcript

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.sweep
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda c: c.name)
def test_all_styles_make_the_same_tool_calls(conversation: Conversation) -> None:
    """Code and JSON do the same work on the same data; each ends every exchange with the scripted answer."""
    transcripts = {style.name: style.play(conversation) for style in (*JSON_STYLES, *CENOTE_STYLES)}
    check_same_calls(conversation.name, transcripts)


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda c: c.name)
def test_no_tool_refuses_a_scripted_call(conversation: Conversation) -> None:
    """The scripts are those of a model that knows what it does: a refusal would be a mistake in the script."""
    results = JSON_STYLES[0].play(conversation).model_calls[-1].prompt
    assert [] == [result for result in results if result.startswith('tool\n{"error"')]


def test_parallel_calls_save_turns_and_lean_ones_save_tokens() -> None:
    """The three JSON styles differ as they should: fewer turns, then smaller prompts with as many turns."""
    one, parallel, lean = (style.play(CONVERSATIONS[1]).model_calls for style in JSON_STYLES)
    assert len(parallel) < len(one)
    assert len(lean) == len(parallel)
    assert sum(len(p) for p in lean[0].prompt) < sum(len(p) for p in parallel[0].prompt)


def test_different_tool_calls_are_noticed() -> None:
    """Order does not matter, another argument does."""
    same = Transcript(model_calls=[], tool_calls=["a 1", "b 2"])
    check_same_calls("c", {"x": same, "y": Transcript(model_calls=[], tool_calls=["b 2", "a 1"])})
    with pytest.raises(ScriptBrokenError, match="b 3"):
        check_same_calls("c", {"x": same, "y": Transcript(model_calls=[], tool_calls=["a 1", "b 3"])})


@pytest.mark.slow
def test_the_command_prints_a_table_and_writes_data(tmp_path: Path) -> None:
    """One conversation, from the command line."""
    data = tmp_path / "tokens.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "tokens",
        "--conversation",
        "track parcel",
        "--json",
        str(data),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100)
    assert "tokens of 1 conversations" in done.stdout
    totals = json.loads(data.read_text())["totals"]
    assert {style.name for style in (*CENOTE_STYLES, *JSON_STYLES)} <= set(totals)
    assert all(cost["prompt"] > 0 < cost["completion"] for cost in totals.values())
