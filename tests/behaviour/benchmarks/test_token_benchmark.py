"""The token benchmark: scripts work in every style, and the command prints the results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.tokens.account import Cost, ModelCall
from benchmarks.tokens.cenote_style import CENOTE_STYLES
from benchmarks.tokens.code_script import ScriptBrokenError
from benchmarks.tokens.comparison import Comparison, check_same_calls
from benchmarks.tokens.conversation import Conversation, Exchange, Toolkit, call
from benchmarks.tokens.conversations import CONVERSATIONS
from benchmarks.tokens.facts import Facts, facts_of
from benchmarks.tokens.json_style import JSON_STYLES
from benchmarks.tokens.report import goals_of
from benchmarks.tokens.style import Transcript

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.sweep
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda c: c.name)
def test_all_styles_make_the_same_tool_calls(conversation: Conversation) -> None:
    """Code and JSON do the same work on the same data; each ends every exchange with the scripted answer."""
    transcripts = {style.name: style.play(conversation) for style in (*JSON_STYLES, *CENOTE_STYLES)}
    check_same_calls(conversation.name, transcripts)


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda c: c.name)
def test_no_tool_refuses_a_scripted_call(conversation: Conversation) -> None:
    """The scripts are those of a competent model: a refusal would be a mistake in the script."""
    results = JSON_STYLES[0].play(conversation).model_calls[-1].prompt
    assert [] == [result for result in results if result.startswith('tool\n{"error"')]


def test_parallel_calls_save_turns_and_lean_ones_save_tokens() -> None:
    """The three JSON styles differ as they should: fewer turns, then smaller prompts with as many turns."""
    one, parallel, lean = (style.play(CONVERSATIONS[1]).model_calls for style in JSON_STYLES)
    assert len(parallel) < len(one)
    assert len(lean) == len(parallel)
    assert sum(len(p) for p in lean[0].prompt) < sum(len(p) for p in parallel[0].prompt)


def test_there_are_twenty_conversations_over_two_domains() -> None:
    """Twelve with a shop, eight with tables, each with a unique name."""
    assert 20 == len({conversation.name for conversation in CONVERSATIONS})
    assert Counter({16: 12, 4: 8}) == Counter(len(one.toolkit().tools) for one in CONVERSATIONS)


NOTED = Conversation(
    name="noted",
    toolkit=lambda: Toolkit(instructions="Names are as in #W100.", tools=[note]),
    exchanges=[
        Exchange(user="What is in #W100?", batches=[[call("note", number="#W100")]], answer=""),
        Exchange(user="And in #W200, for 300?", batches=[[call("note", number="#W200")]], answer=""),
    ],
)


def note(number: str) -> dict[str, object]:
    """Returns the note on a number."""
    return {"number": number, "price": 1234.5, "paid": True, "parts": [{"name": "Desk Lamp", "size": "S"}]}


@pytest.mark.parametrize(
    ("prompt", "completion", "stated", "missing"),
    [
        ("", "Nothing.", 0, ()),
        ("", "#W100 is paid.", 0, ()),
        ("", "A desk lamp for 1,234.50.", 2, ("1234.5", "Desk Lamp")),
        ("price: 1234.5, name: Desk Lamp", "A desk lamp for 1,234.50.", 2, ()),
        ("price: 1234.55, name: Desk Lamps", "A desk lamp for 1,234.50.", 2, ("1234.5", "Desk Lamp")),
        ("{'name': 'desk_lamp', 'price': -1234.5}", "desk lamp: 1234.5", 2, ()),
        ("", "Compare it with #W200.", 0, ()),
    ],
    ids=[
        "nothing",
        "said by the user",
        "not seen",
        "seen",
        "something else seen",
        "written otherwise",
        "of later",
    ],
)
def test_facts_are_what_tools_returned(
    prompt: str, completion: str, stated: int, missing: tuple[str, ...]
) -> None:
    """A model that states a fact missing from its prompt has guessed it; the format of values is ignored."""
    found = facts_of(NOTED, [ModelCall(prompt=("system", prompt), completion=completion)])
    assert Facts(stated=stated, missing=missing) == found


def test_what_the_user_says_later_is_no_fact_either() -> None:
    """A value that a tool returned before, and that no user has stated yet, is a fact."""
    at = [
        facts_of(NOTED, [ModelCall(prompt=(), completion="Desk Lamp, #W200", exchange=place)])
        for place in (0, 1)
    ]
    assert [1, 1] == [found.stated for found in at]


@pytest.mark.parametrize("name", ["address book", "order history"])
def test_no_fact_is_missing_until_outputs_are_hidden(name: str) -> None:
    """Including long tables and nested records. Of hidden outputs the model states facts that it cannot know."""
    (conversation,) = (one for one in CONVERSATIONS if one.name == name)
    calls = CENOTE_STYLES[0].play(conversation).model_calls
    assert () == facts_of(conversation, calls).missing
    hidden = [
        replace(one, prompt=tuple(part.partition("Output:")[0] for part in one.prompt)) for one in calls
    ]
    assert 0.5 < facts_of(conversation, hidden).share_missing


def test_goals_are_judged_by_totals_and_facts() -> None:
    """A goal is missed at the bound."""
    comparison = Comparison(
        conversations=["c"],
        styles=[],
        costs={
            ("c", "cenote"): Cost(calls=1, prompt=30, completion=5),
            ("c", "json"): Cost(calls=1, prompt=100),
            ("c", "json lean"): Cost(calls=1, prompt=47),
        },
        facts={("c", "cenote"): Facts(stated=2000, missing=("a",) * 9)},
    )
    assert ["missed", "reached", "reached"] == [str(goal).split()[0] for goal in goals_of(comparison)]


def test_prices_weigh_completions_and_what_a_cache_holds() -> None:
    """A completion token costs five fresh ones, a cached one a tenth."""
    cost = Cost(calls=2, prompt=1000, cacheable=600, completion=10)
    assert (1050, 510) == (cost.uncached_price, cost.price)


def test_different_tool_calls_are_noticed() -> None:
    """Order does not matter, a different argument does."""
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
    assert "fewer than 0.5 % of facts are missing: 0.0 %" in done.stdout
    totals = json.loads(data.read_text())["totals"]
    assert {style.name for style in (*CENOTE_STYLES, *JSON_STYLES)} <= set(totals)
    assert all(cost["prompt"] > 0 < cost["completion"] for cost in totals.values())
