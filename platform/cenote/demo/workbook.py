"""A small analysis in steps, a patch of it, a step that crashes: what the demonstration ends with."""

from __future__ import annotations

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
