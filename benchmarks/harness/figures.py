"""Figures of one run of this benchmark, one number per name, and the goals they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.harness.mending import WAYS, Mended
from benchmarks.harness.notebooks import Patched
from benchmarks.harness.outcome import Played
from benchmarks.harness.programs import Case

Figures = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A figure between two inclusive bounds."""

    text: str
    figure: str
    at_most: float = float("inf")
    at_least: float = 0.0

    def verdict(self, figures: Figures) -> Literal["reached", "missed", "open"]:
        found = figures.get(self.figure)
        if found is None:
            return "open"
        return "reached" if self.at_least <= found <= self.at_most else "missed"


GOALS = (
    Goal(text="every trap comes out as in a full run", figure="traps right", at_least=1.0),
    Goal(text="every random history too", figure="programs sound", at_least=1.0),
    Goal(text="and every notebook whose patch was applied", figure="notebooks sound", at_least=1.0),
    Goal(text="every patch of a notebook is applied", figure="notebooks applied", at_least=1.0),
    Goal(text="at most 1.3 steps run again for one that is affected", figure="programs ratio", at_most=1.3),
    Goal(text="in notebooks too", figure="notebooks ratio", at_most=1.3),
    Goal(
        text="a patch takes at most 70 % of the tokens of writing affected steps anew",
        figure="mending tokens",
        at_most=0.7,
    ),
    Goal(
        text="a patch with its answer takes at most 70 % of those of writing anew and answering",
        figure="mending tokens, one turn for two",
        at_most=0.7,
    ),
    Goal(text="and costs at most 70 % with cached prompts", figure="mending price", at_most=0.7),
)


def of_traps(played: Sequence[Played]) -> Figures:
    """Shares of correct results by system; Cenote's share has the name of the goal."""
    shares = {
        f"traps right, {one.system}": one.count("right") / len(one.outcomes) for one in played if one.outcomes
    }
    ours = shares.get("traps right, cenote")
    return shares if ours is None else {**shares, "traps right": ours}


def of_programs(cases: Sequence[Case]) -> Figures:
    applied = [case for case in cases if not case.stopped]
    return {
        "programs sound": sum(case.sound for case in applied) / len(applied),
        "programs ratio": sum(case.rerun for case in applied) / sum(case.affected for case in applied),
        "programs share run": sum(case.rerun for case in applied) / sum(case.behind for case in applied),
    }


def of_notebooks(patched: Sequence[Patched]) -> Figures:
    """Ratios and shares of sums over all applied patches."""
    applied = [one for one in patched if one.applied]
    found = {"notebooks applied": len(applied) / len(patched)}
    if not applied:
        return found
    return {
        **found,
        "notebooks sound": sum(one.sound for one in applied) / len(applied),
        "notebooks ratio": sum(one.rerun for one in applied) / sum(one.affected for one in applied),
        "notebooks steps saved": 1 - sum(one.rerun for one in applied) / sum(one.steps for one in applied),
        "notebooks seconds saved": sum(one.saved for one in applied) / sum(one.seconds for one in applied),
        "notebooks CPU, times a full run": sum(one.apply_cpu for one in applied)
        / sum(one.full_cpu for one in applied),
    }


def of_mending(mended: Sequence[Mended]) -> Figures:
    """Sums over all changes, by way."""
    found: dict[str, float] = {}
    for way in WAYS:
        mine = [one for one in mended if one.way == way]
        found[f"written, {way}"] = sum(one.cost.completion for one in mine)
        found[f"tokens, {way}"] = sum(one.cost.total for one in mine)
        found[f"uncached, {way}"] = sum(one.cost.uncached_price for one in mine)
        found[f"price, {way}"] = sum(one.cost.price for one in mine)
        found[f"CPU, {way}"] = sum(one.cpu for one in mine)
    for kind in ("tokens", "price"):
        found[f"mending {kind}"] = found[f"{kind}, patch"] / found[f"{kind}, affected anew"]
        found[f"mending {kind}, one turn"] = found[f"{kind}, patch, reply"] / found[f"{kind}, anew, reply"]
    found["mending tokens, one turn for two"] = found["tokens, patch, reply"] / found["tokens, affected anew"]
    return found
