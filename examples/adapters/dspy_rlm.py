"""dspy.RLM cleans a table in three turns; the second turn is taken back.

python examples/adapters/dspy_rlm.py        needs `pip install 'cenote[data,dspy]'`
"""

from __future__ import annotations

import dspy
import pandas as pd
from dspy.utils import DummyLM

from cenote import PythonRuntime, Variable
from cenote.adapters.dspy import InterpreterFactory

ORDERS = pd.DataFrame(
    {
        "id": [1, 2, 2, 3, 4],
        "city": ["Oslo", "oslo ", "oslo ", "Bergen", None],
        "paid": [10.0, None, None, 30.0, 20.0],
    }
)

TURNS = {
    "Drop repeated orders.": "orders = orders.drop_duplicates()\nSUBMIT(str(len(orders)))",
    "Drop what is missing.": "orders = orders.dropna()\nSUBMIT(str(len(orders)))",
    "Fill in what is missing, and sum up by city.": (
        "orders['city'] = orders.city.str.strip().str.title().fillna(usual_city())\n"
        "orders['paid'] = orders.paid.fillna(orders.paid.median())\n"
        "SUBMIT(str(orders.groupby('city').paid.sum().to_dict()))"
    ),
}
SCRIPT = [{"reasoning": task, "code": code} for task, code in TURNS.items()]


def usual_city() -> str:
    """The city of an order that names none; this function runs in your process."""
    return "Oslo"


dspy.configure(lm=DummyLM(SCRIPT))  # with a model of your own: dspy.LM("...")
with PythonRuntime(variables=[Variable("orders", ORDERS)]) as runtime:
    worker = dspy.RLM("task -> answer", tools=[usual_city], interpreter_factory=InterpreterFactory(runtime))
    first, second, third = TURNS
    print("rows without repetitions:", worker(task=first).answer)
    before = runtime.snapshot("before dropping")
    print("rows that are complete:", worker(task=second).answer)
    runtime.rollback(before)  # too much is lost
    print("paid:", worker(task=third).answer)
