"""The benchmark of patches: judging outcomes, scripted models, and driving rivals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.harness.figures import GOALS, Goal, of_mending, of_notebooks, of_programs, of_traps
from benchmarks.harness.mending import WAYS, Mended, Way, patch_block
from benchmarks.harness.notebooks import Patched
from benchmarks.harness.outcome import Outcome, Played
from benchmarks.harness.programs import Case, measure
from benchmarks.harness.report import goals_text, mending_text, programs_text, traps_text
from benchmarks.harness.rivals.ipyflow_front import Schedule
from benchmarks.harness.rivals.playing import RIVALS, play
from benchmarks.rivals import FOLDER
from benchmarks.tokens.account import Cost
from tests.soundness.notebooks.notebook import NAMES, load

from cenote.agent.parse.patch_block import read_patch
from cenote_worker.history.step import StepRecord

ROOT = Path(__file__).resolve().parents[3]
ANSWER = {
    "cell_parents": {"b": ["a"], "c": ["b"], "d": ["a"]},
    "cell_children": {"a": ["b"], "b": ["c"]},
    "executed_cells": ["a", "b", "c", "d"],
    "ready_cells": [],
    "waiting_cells": [],
    "new_ready_cells": ["d"],
    "forced_reactive_cells": [],
    "stale_parents": {},
    "stale_parents_by_executed_cell_by_child": {},
    "stale_parents_by_child_by_executed_cell": {},
}


@pytest.mark.parametrize(
    ("closure", "change"),
    [
        ({"b", "c"}, {}),
        ({"a", "b", "c"}, {"ready_cells": ["a"]}),
        ({"a", "b", "c"}, {"stale_parents": {"b": ["a"]}}),
        ({"a", "b", "c"}, {"stale_parents_by_executed_cell_by_child": {"b": {"c": ["a"]}}}),
        ({"b", "c"}, {"stale_parents_by_executed_cell_by_child": {"b": {"d": ["a"]}}}),
    ],
)
def test_ipyflow_runs_what_depends_on_a_cell_and_what_that_needs(
    closure: set[str], change: dict[str, object]
) -> None:
    """Parents run only when they are due, when they are stale, or when a cell that will run changes their results."""
    schedule = Schedule({**ANSWER, **change}, dirty=["b"])
    assert closure == schedule.closure(["b"])
    assert {"d"} == schedule.new


@pytest.mark.parametrize(
    ("verdict", "wanted", "found"),
    [
        ("right", "[1]", "[1]"),
        ("wrong", "[1]", "[2]"),
        ("right", "<f at 0x7f0000000001>", "<f at 0x7f0000000002>"),
    ],
    ids=["the same", "another value", "another address"],
)
def test_a_trap_is_judged_by_what_is_found(verdict: str, wanted: str, found: str) -> None:
    """Addresses differ between any two processes."""
    assert verdict == Outcome.judged("trap", wanted, found, cells=1).verdict


def test_a_rival_that_is_missing_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark runs without it."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    played = play(RIVALS[0], [], lambda *_: None)
    assert "no environment of ipyflow" in played.missing
    assert played.missing in traps_text([played])


FAR_END = """
import os, sys
from benchmarks.harness.rivals.far_end import Case, RefusedError, serve

def full(cells, look):
    names = {}
    for cell in cells:
        exec(cell, names)
    return repr(eval(look, names))

def patched(case):
    if case.code == "refuse":
        raise RefusedError("not this one")
    if case.code == "os._exit(1)":
        os._exit(1)
    open("left", "x").close()
    return "1", "2", 1

serve(lambda cells, look: full([cell for cell in cells if "=" in cell], look), patched, int(sys.argv[1]))
"""


def test_a_far_end_tells_apart_how_cases_end() -> None:
    """Each runs in an empty folder and a separate process, so that a failing case does not affect others."""
    reading, writing = os.pipe()
    asked = [
        *(("x = 2", "x"), ("x = 3", "x"), ("refuse", "0"), ("os._exit(1)", "0"), ("x = 2", "y")),
        ("x = 2", "x + 10"),
    ]
    cases = [{"cells": ["x = 1"], "step": 1, "code": code, "look": look} for code, look in asked]
    subprocess.run(
        [sys.executable, "-c", FAR_END, str(writing)],
        input="".join(json.dumps(case) + "\n" for case in cases),
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        pass_fds=[writing],
        text=True,
        check=True,
        timeout=60,
    )
    os.close(writing)
    with os.fdopen(reading) as lines:
        answers = [json.loads(line) for line in lines]
    assert [
        ["ran", "2", "2", 1, ""],
        ["ran", "3", "2", 1, ""],
        ["refused", "0", "", 0, "not this one"],
        ["broke", "0", "", 0, "its process died"],
        ["broke", "", "", 0, "a full run: NameError: name 'y' is not defined"],
        ["broke", "12", "2", 1, "before the patch: 1 instead of 11"],
    ] == answers


@pytest.mark.parametrize("name", NAMES)
def test_the_patch_that_a_model_is_scripted_to_write_makes_the_change(name: str) -> None:
    """Its quotation occurs once in the step, and the result is the edited cell."""
    notebook = load(name)
    for edit in notebook.edits:
        old, new = notebook.cells[edit.step - 1], notebook.edited(edit)[edit.step - 1]
        block = patch_block(edit.step, edit.reason, old, new)
        text = block.removeprefix("```patch\n").removesuffix("\n```")
        (change,) = read_patch(text).patch("").applied([StepRecord(number=edit.step, code=old)])
        assert new == change.code


@pytest.mark.slow
def test_random_histories_are_those_of_full_runs() -> None:
    """A few of the thousand that the benchmark runs."""
    figures = of_programs(cases := measure(range(20)))
    assert 1.0 == figures["programs sound"]
    assert "20 patches" in programs_text(cases)


def test_what_was_stopped_or_not_applied_does_not_count_as_sound() -> None:
    """It does not count as rerun either."""
    figures = of_programs([Case(behind=4, rerun=2, affected=2), Case(stopped=True, sound=False)])
    assert (1.0, 1.0, 0.5) == tuple(figures.values())
    common = {"notebook": "n", "reason": "", "steps": 4, "behind": 2, "affected": 1, "full_cpu": 1.0}
    applied = Patched(**common, rerun=2, seconds=10.0, saved=5.0, apply_cpu=0.5, status="applied", sound=True)
    failed = Patched(
        **common, rerun=4, seconds=10.0, saved=0.0, apply_cpu=0.1, status="not kept", sound=False
    )
    assert (0.5, 1.0, 2.0, 0.5, 0.5, 0.5) == tuple(of_notebooks([applied, failed]).values())


def mended(way: Way, written: int) -> Mended:
    return Mended(
        notebook="n",
        reason="r",
        way=way,
        cost=(cost := Cost(calls=2, prompt=1000, cacheable=900, completion=written)),
        whole=cost,
        where={"system": 500},
        cpu=1.0,
        wall=1.0,
        outcome="success" if written < 1000 else "failed",
    )


def test_every_goal_is_about_a_figure_that_is_measured() -> None:
    """Otherwise the goal would always be open."""
    right = Outcome(trap="t", verdict="right")
    applied = Patched(
        notebook="n", reason="", steps=1, behind=1, rerun=1, affected=1, seconds=1.0, saved=0.0,
        full_cpu=1.0, apply_cpu=1.0, status="applied", sound=True,
    )  # fmt: skip
    figures = {
        **of_traps([Played(system="cenote", asked="", outcomes=[right])]),
        **of_programs([Case(behind=1, rerun=1, affected=1)]),
        **of_notebooks([applied]),
        **of_mending(
            [mended(way, written) for way, written in zip(WAYS, (10, 10, 1000, 1000, 1000), strict=True)]
        ),
    }
    assert Counter({"reached": len(GOALS)}) == Counter(goal.verdict(figures) for goal in GOALS)


@pytest.mark.parametrize(("verdict", "found"), [("reached", 1.3), ("missed", 1.31), ("open", None)])
def test_a_goal_holds_at_its_bound_and_not_past_it(verdict: str, found: float | None) -> None:
    """It is open while nothing was measured."""
    figures = {} if found is None else {"ratio": found}
    assert verdict == Goal(text="", figure="ratio", at_most=1.3).verdict(figures)


def test_what_a_change_costs_an_agent_is_held_against_writing_anew() -> None:
    """In tokens, and in prices with and without a cache; a failed change is named."""
    changes = [mended(way, written) for way, written in zip(WAYS, (50, 50, 200, 200, 1000), strict=True)]
    figures = of_mending(changes)
    assert (0.875, 0.37) == pytest.approx([figures["mending tokens"], figures["mending price"]], abs=0.01)
    text = mending_text(changes).splitlines()
    assert ["50", "1x", "1,050", "1x", "1,250", "1x", "440", "1x", "1.00", "1x"] == text[2].split()[1:]
    assert "  n, r, all behind anew: failed" == text[-1]
    goals = goals_text(figures).splitlines()
    assert [["missed"], ["reached"]] == [line.split()[:1] for line in goals[-2:]]
