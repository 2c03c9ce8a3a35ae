"""The measured work: cells, the setup they need, and the goal for the cost of recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.record.session import CELLS


@dataclass(frozen=True, kw_only=True)
class Row:
    """setup: cells that are not measured. cells: those of one repetition. repeats: how often they run, at least
    once; the first repetition is reported separately. goal: the intended limit, in words."""

    setup: tuple[str, ...] = ()
    cells: tuple[str, ...]
    repeats: int = 9
    goal: str


_SMALL_CELL: Final = """\
import math
rows = [{"name": f"n{i}", "value": i * 1.5, "tags": ["a", "b"]} for i in range(40)]
totals = {}
for row in rows:
    totals[row["name"]] = totals.get(row["name"], 0) + row["value"]
def scale(value, factor=2):
    return value * factor + math.sqrt(value)
scaled = [scale(row["value"]) for row in rows]
best = max(scaled)
worst = min(scaled)
mean = sum(scaled) / len(scaled)
index = {row["name"]: place for place, row in enumerate(rows)}
names = sorted(index, key=index.get, reverse=True)
pairs = list(zip(names, scaled))
picked = [pair for pair in pairs if pair[1] > mean]
text = ", ".join(name for name, _ in picked[:5])
summary = {"best": best, "worst": worst, "mean": mean}
summary["count"] = len(picked)
print(text)
print(summary)
"""

_ARRAY: Final = ("import numpy as np", "a = np.random.rand(64 * 2**20)")
_PLOT: Final = (
    "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()",
    "s = 0",
)
_FRAME: Final = (
    "import numpy as np, pandas as pd",
    "df = pd.DataFrame(np.random.rand(6_250_000, 10), columns=list('abcdefghij'))",
)
_GRAPHS: Final = {
    "instances": """\
class Node:
    def __init__(self, i):
        self.i, self.name = i, f"n{{i}}"
nodes = [Node(i) for i in range({count})]
""",
    "dicts": "nodes = [{{'i': i, 'name': f'n{{i}}', 'tags': [i]}} for i in range({count})]\n",
    "linked": """\
class Node:
    def __init__(self, i, before):
        self.i, self.before, self.after = i, before, None
nodes, last = [], None
for i in range({count}):
    node = Node(i, last)
    if last is not None:
        last.after = node
    nodes.append(node)
    last = node
del node, last, i
""",
}
_CHANGES: Final = {"instances": "nodes[5].i = 3", "dicts": "nodes[5]['i'] = 3", "linked": "nodes[5].i = 3"}


def _graphs() -> dict[str, Row]:
    found = dict[str, Row]()
    for count, goal in (
        (100_000, "first <= 60 ms, later <= 5 ms"),
        (1_000_000, "first <= 60 ms, later <= 5 ms"),
    ):
        for kind, text in _GRAPHS.items():
            setup = (text.format(count=count),)
            found[f"one thing of {count:,} {kind}"] = Row(
                setup=setup, cells=("t = len(nodes)",), goal=goal, repeats=5
            )
            if count == 100_000:
                found[f"one attribute or key of {count:,} {kind}"] = Row(
                    setup=setup, cells=(_CHANGES[kind],), goal="<= 60 ms", repeats=5
                )
    small = tuple(
        cell
        for i in range(50)
        for cell in (f"x = {i}", f"t = nodes[{i}].i", f"nodes[{i}].i = -{i}", "y = x + t")
    )
    found["200 small cells over 100,000 linked"] = Row(
        setup=(_GRAPHS["linked"].format(count=100_000),), cells=small, goal="<= 3 s", repeats=1
    )
    return found


ROWS: Final[dict[str, Row]] = {
    "x = 1 alone": Row(setup=("pass",), cells=("x = 1",), goal="<= 0.8 ms", repeats=200),
    "an ordinary 20-line cell": Row(cells=(_SMALL_CELL,), goal="<= 2 ms", repeats=60),
    "a 30-cell scikit-learn session, fresh": Row(cells=CELLS, goal="<= 1.25 of bare", repeats=1),
    "the same session, repeated": Row(setup=CELLS, cells=CELLS, goal="<= 1.25 of bare", repeats=4),
    "len(a), 512 MB": Row(setup=_ARRAY, cells=("m = len(a)",), goal="<= 3 ms"),
    "a.shape, 512 MB": Row(setup=_ARRAY, cells=("m = a.shape",), goal="<= 3 ms"),
    "a slice of 512 MB": Row(setup=_ARRAY, cells=("s = a[1000:1100].sum()",), goal="<= 3 ms"),
    "a plot of a slice of 512 MB": Row(
        setup=(*_ARRAY, *_PLOT), cells=("lines = axes.plot(a[1000:1100])",), goal="as bare + 3 ms"
    ),
    "one column of a 500 MB frame": Row(setup=_FRAME, cells=("s = df.c.sum()",), goal="bare + 10 ms"),
    **_graphs(),
    "x = 1 beside 2,000 files": Row(
        setup=("import os\nfor i in range(2000):\n    with open(f'f{i}.txt', 'w') as f:\n        f.write('x')",),
        cells=("x = 1",), goal="<= 2 ms", repeats=15,
    ),
    "x = 1 beside 5,000 names": Row(
        setup=("for i in range(5000):\n    globals()[f'v{i}'] = i",), cells=("x = 1",), goal="<= 2 ms", repeats=15
    ),
    "x = 1 beside 100,000 names that are lists": Row(
        setup=("for i in range(100_000):\n    globals()[f'v{i}'] = [i]",),
        cells=("x = 1",), goal="<= 20 ms", repeats=5,
    ),
}  # fmt: skip
