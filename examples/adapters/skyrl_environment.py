"""A policy trained with SkyRL cleans a table in three turns; the second turn is taken back.

python examples/adapters/skyrl_environment.py        needs `pip install 'cenote[data,skyrl]'`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from cenote import Function, PythonRuntime, Variable
from cenote.adapters.skyrl import CenoteTextEnv
from cenote.rl import Environment, FinalState

ORDERS = pd.DataFrame(
    {
        "id": [1, 2, 2, 3, 4],
        "city": ["Oslo", "oslo ", "oslo ", "Bergen", None],
        "paid": [10.0, None, None, 30.0, 20.0],
    }
)

CODE = [  # the answers of a model
    "orders = orders.drop_duplicates()\nlen(orders)",
    "orders = orders.dropna()\nlen(orders)",
    "orders['city'] = orders.city.str.strip().str.title().fillna(usual_city())\n"
    "orders['paid'] = orders.paid.fillna(orders.paid.median())\n"
    "sums = orders.groupby('city').paid.sum().to_dict()\nreply(str(sums))",
]


def usual_city() -> str:
    """The city of an order that names none; this function runs in your process."""
    return "Oslo"


def make_runtime() -> PythonRuntime:
    return PythonRuntime(variables=[Variable("orders", ORDERS)], functions=[Function(usual_city, host=True)])


def score(final: FinalState) -> float:
    return float(final.retrieve("sums") == {"Bergen": 30.0, "Oslo": 50.0})


class Cleaning(CenoteTextEnv):
    """One row of the data set is one task."""

    def environment(self, extras: Mapping[str, Any]) -> Environment:
        return Environment(extras["task"], make_runtime, score, max_steps=5)


episode = Cleaning(extras={"task": "Clean the orders, and sum up by city."})
try:
    prompt, _ = episode.init([])
    turns = [f"```python\n{code}\n```" for code in CODE]
    print("rows without repetitions:", episode.step(turns[0])["observations"][0]["content"].strip())
    before = episode.running.runtime.snapshot("before dropping")
    print("rows that are complete:", episode.step(turns[1])["observations"][0]["content"].strip())
    episode.running.runtime.rollback(before)  # too much is lost
    last = episode.step(turns[2])
    print("paid:", last["metadata"]["answer"])
    assert (last["reward"], last["done"]) == (1.0, True)
finally:
    episode.close()
