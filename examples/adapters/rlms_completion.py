"""A recursive language model cleans a table in three completions; the second one is taken back.

python examples/adapters/rlms_completion.py        needs `pip install 'cenote[data,rlms]'`
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pandas as pd
import rlm.core.rlm
from rlm import RLM
from rlm.clients.base_lm import BaseLM
from rlm.core.types import ModelUsageSummary, UsageSummary

import cenote.adapters.rlms  # adds the environment "cenote"
from cenote import PythonRuntime, Variable

ORDERS = pd.DataFrame(
    {
        "id": [1, 2, 2, 3, 4],
        "city": ["Oslo", "oslo ", "oslo ", "Bergen", None],
        "paid": [10.0, None, None, 30.0, 20.0],
    }
)

CODE = [
    "orders = orders.drop_duplicates()\nanswer['content'] = len(orders)",
    "orders = orders.dropna()\nanswer['content'] = len(orders)",
    "orders['city'] = orders.city.str.strip().str.title().fillna(usual_city())\n"
    "orders['paid'] = orders.paid.fillna(orders.paid.median())\n"
    "answer['content'] = orders.groupby('city').paid.sum().to_dict()",
]


class Scripted(BaseLM):
    """Answers with these codes in order."""

    def completion(self, *_: Any) -> str:
        return f"```repl\n{CODE.pop(0)}\nanswer['ready'] = True\n```"

    async def acompletion(self, prompt: Any) -> str:
        return self.completion(prompt)

    def get_usage_summary(self) -> UsageSummary:
        return UsageSummary(model_usage_summaries={})

    def get_last_usage(self) -> ModelUsageSummary:
        return ModelUsageSummary(total_calls=1, total_input_tokens=0, total_output_tokens=0)


def usual_city() -> str:
    """The city of an order that names none; this function runs in your process."""
    return "Oslo"


with (
    patch.object(rlm.core.rlm, "get_client", lambda *_: Scripted(model_name="scripted")),
    PythonRuntime(variables=[Variable("orders", ORDERS)]) as runtime,
):
    model = RLM(
        backend_kwargs={"model_name": "scripted"},
        environment=cenote.adapters.rlms.NAME,
        environment_kwargs={"runtime": runtime, "timeout": 30},
        custom_tools={"usual_city": usual_city},
    )
    print("rows without repetitions:", model.completion("Drop repeated orders.").response)
    before = runtime.snapshot("before dropping")
    print("rows that are complete:", model.completion("Drop what is missing.").response)
    runtime.rollback(before)  # too much is lost
    print("paid:", model.completion("Fill in what is missing, and sum up by city.").response)
