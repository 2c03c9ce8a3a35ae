"""A policy cleans a table in an OpenEnv environment, in three turns; the second turn is taken back.

python examples/adapters/openenv_server.py        needs `pip install 'cenote[data,openenv]'`

`uvicorn openenv_server:app` serves the same environment over HTTP and WebSocket.
"""

from __future__ import annotations

import pandas as pd

from cenote import Function, PythonRuntime, Variable
from cenote.adapters.openenv import CenoteEnvironment, TextAction, environment_app
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


def make() -> Environment:
    return Environment("Clean the orders, and sum up by city.", make_runtime, score, max_steps=5)


app = environment_app(make)

if __name__ == "__main__":
    session = CenoteEnvironment(make)
    try:
        session.reset(seed=1)
        turns = [TextAction(text=f"```python\n{code}\n```") for code in CODE]
        print("rows without repetitions:", session.step(turns[0]).text.strip())
        before = session.environment.runtime.snapshot("before dropping")
        print("rows that are complete:", session.step(turns[1]).text.strip())
        session.environment.runtime.rollback(before)  # too much is lost
        last = session.step(turns[2])
        print("paid:", last.metadata["answer"])
        assert (last.reward, last.done) == (1.0, True)
    finally:
        session.close()
