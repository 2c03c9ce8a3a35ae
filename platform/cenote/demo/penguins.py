"""The demonstration, from the first line to the table at the end.

In its second half a small analysis is patched, which runs again only what the patch breaks, and survives a crash.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from cenote import tokens
from cenote.demo import script
from cenote.demo.agents import (
    TITLE,
    DemoTeam,
    Models,
    Transfer,
    cost_table,
    load_raw,
    open_team,
    read_csv_bytes,
    transfer_table,
)
from cenote.harness import Patch
from cenote.models import LiteLLMModel, ScriptedModel
from cenote.runtime import PythonRuntime, Variable
from cenote.terminal.screen import BOLD, DIM, Screen
from cenote_security.errors import UnknownNameError, UsageError
from cenote_security.extras import require
from cenote_worker.execution.results import VariableInfo

CELLS = (
    """import numpy as np
import pandas as pd

birds = pd.DataFrame({
    "species": raw["Species"].str.split().str[0],
    "flipper": raw["Flipper Length (mm)"],
    "mass": raw["Body Mass (g)"],
}).dropna()""",
    """def slope(table):
    return np.polyfit(table["flipper"], table["mass"], 1)[0]""",
    """draws = np.random.default_rng(7)
means = [draws.choice(birds["mass"], len(birds)).mean() for _ in range(20_000)]
margin = (np.quantile(means, 0.975) - np.quantile(means, 0.025)) / 2
print(f"mean mass {birds['mass'].mean():.0f} g, give or take {margin:.0f} g")""",
    """slopes = {species: slope(table) for species, table in birds.groupby("species")}
print({species: f"{grams:.1f} g per mm" for species, grams in slopes.items()})""",
    """counts = birds["species"].value_counts().to_dict()
print(counts)""",
)

PATCHED = "slope"
PATCH = '''\
def slope(table):
    """By medians of neighbours, so that single heavy birds do not count as much."""
    by_flipper = table.groupby("flipper")["mass"].median()
    return np.polyfit(by_flipper.index, by_flipper, 1)[0]'''
REASON = "outliers pull the line"

CRASH = """import os, signal

del birds
slopes.clear()
os.kill(os.getpid(), signal.SIGKILL)"""

AFTER = "print(len(birds), 'birds,', len(slopes), 'slopes')"


def show_mending(screen: Screen) -> bool:
    """Runs an analysis in a jail of its own, patches it, has it crash, and prints what is left. True when all is."""
    screen.line()
    screen.line("An analysis in steps, one of which was wrong", BOLD)
    with load_raw() as raw, PythonRuntime(variables=[Variable("raw", raw)]) as runtime:
        for code in CELLS:
            result = runtime.execute(code)
            _show(screen, f"step {result.step}", result.stdout)
        return _patch(runtime, screen) and _crash(runtime, screen)


def _patch(runtime: PythonRuntime, screen: Screen) -> bool:
    """Changes a function that one of the steps defines."""
    state = runtime.state
    before = sum(step.duration for step in state.steps)
    screen.line(f"--- a patch of `{PATCHED}`: {REASON}", BOLD)
    plan = state.plan(Patch.replace_function(PATCHED, PATCH, reason=REASON))
    screen.line(plan.explain(), DIM)
    started = time.perf_counter()
    result = state.apply(plan)
    seconds = time.perf_counter() - started
    for record in result.records:
        if record.outcome == "executed":
            _show(screen, f"step {record.origin} anew", record.stdout)
    screen.line(
        f"{result.status}: {len(result.steps_rerun)} of {len(CELLS)} steps ran again, in {seconds:.2f} s; "
        f"all of them had taken {before:.2f} s. Changed: {', '.join(result.changed)}"
    )
    return result.status == "applied"


def _crash(runtime: PythonRuntime, screen: Screen) -> bool:
    """A step destroys what is there, and then its process."""
    screen.line("--- a crash", BOLD)
    screen.line(CRASH, DIM)
    crashed = runtime.execute(CRASH)
    screen.line(f"the step: {crashed.error}; the state: {crashed.state.replace('_', ' ')}")
    after = runtime.execute(AFTER)
    _show(screen, "still there", after.stdout)
    return after.success


def _show(screen: Screen, what: str, text: str) -> None:
    if text.strip():
        screen.line(f"{what}: {text.strip()}")


LIBRARIES = ("numpy", "pandas", "matplotlib")
PNG = b"\x89PNG\r\n\x1a\n"
HANDOVERS = (
    ("raw", "client", "orchestrator"),
    ("raw", "orchestrator", "cleaner"),
    ("penguins", "cleaner", "analyst"),
)


def run_demo(screen: Screen, *, model: str | None, folder: Path) -> bool:
    """Has three agents analyze the data set, on `model` or by the script, and prints what happens.

    Then patches an analysis and has it crash. Puts the figure into `folder`. True when the agents answered and left
    findings and a figure, the patch was applied, and the crash took nothing with it.
    Raises UsageError when the folder cannot be written, and MissingExtraError without the libraries that the demo
    uses, before any model is asked; and what models and jails raise.
    """
    need_libraries()
    path = figure_path(folder)
    who = (
        f"the model {model}" if model else "scripted models: their words are canned, their code runs for real"
    )
    screen.line("Cenote demo: three agents, each in a jail of its own", BOLD)
    screen.line(f"data   {TITLE}", DIM)
    screen.line(f"model  {who}", DIM)
    screen.line(f"task   {script.TASK}", DIM)
    screen.progress("starting jails")
    with open_team(choose_models(model), screen) as team:
        screen.line(f"jail   isolation {team.runtimes['cleaner'].isolation}", DIM)
        response = asyncio.run(team.orchestrator.run(script.TASK))
        screen.clear_progress()
        done = save_figure(team, path, screen) and response.status.value == "success"
        print_ledger(team, screen)
    return show_mending(screen) and done


def need_libraries() -> None:
    """Raises MissingExtraError for libraries that the demo's code uses and that are not installed."""
    require("a library of the demo", "data", *LIBRARIES)


def choose_models(name: str | None) -> Models:
    """The named model three times, or the three scripts."""
    if name:
        return Models(
            orchestrator=LiteLLMModel(model_id=name),
            cleaner=LiteLLMModel(model_id=name),
            analyst=LiteLLMModel(model_id=name),
        )
    return Models(
        orchestrator=ScriptedModel(script.ORCHESTRATOR),
        cleaner=ScriptedModel(script.CLEANER),
        analyst=ScriptedModel(script.ANALYST),
    )


def figure_path(folder: Path) -> Path:
    """Where the figure will go, in a folder that is made and tried now."""
    path = folder / "penguins.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return path
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def save_figure(team: DemoTeam, path: Path, screen: Screen) -> bool:
    """Takes the figure out of the analyst's namespace. False, and a line that says so, if there is none."""
    try:
        data = team.runtimes["analyst"].retrieve("figure")
    except UnknownNameError:
        data = None
    if not (isinstance(data, bytes) and data.startswith(PNG)):
        screen.line("The analyst left no figure.")
        return False
    path.write_bytes(data)
    screen.line(f"figure {path} ({len(data):,} bytes, retrieved from the analyst's namespace)", BOLD)
    return True


def print_ledger(team: DemoTeam, screen: Screen) -> None:
    """What it cost, and what went by reference instead of through prompts."""
    rows = [agent.row() for agent in team.agents]
    screen.line()
    for line in cost_table(rows):
        screen.line(line)
    if any(row.usage.estimated for row in rows):
        screen.line("~ counted here with a tokenizer; no server reported it", DIM)
    screen.line("The orchestrator's seconds include the time that it waits for the other two.", DIM)
    screen.line()
    for line in transfer_table(handovers(team)):
        screen.line(line)
    as_text = tokens.approximate_tokens(read_csv_bytes().decode())
    screen.line(f"As text, the raw table alone is {as_text:,} tokens each time that it is sent.", DIM)


def handovers(team: DemoTeam) -> list[Transfer]:
    """The tables that went from namespace to namespace, with their sizes where they arrived."""
    arrived = {name: frames(runtime.describe()) for name, runtime in team.runtimes.items()}
    return [
        Transfer(what=what, source=source, target=target, size=arrived[target][what])
        for what, source, target in HANDOVERS
        if what in arrived[target]
    ]


def frames(variables: list[VariableInfo]) -> dict[str, int]:
    """Sizes in bytes of the DataFrames among `variables`."""
    return {info.name: info.size for info in variables if info.type.endswith("DataFrame")}
