"""A dataset larger than a jail: the agent tries functions on a few rows, and applies them to all.

Ray moves the blocks; each is processed in a jail, and only the rows that the agent prints reach the model.

python examples/large_dataset.py [--model MODEL]
"""

from __future__ import annotations

import asyncio
import logging

import pyarrow as pa
import ray
from model_choice import choose_model

from cenote import CaveAgent, PythonRuntime, SandboxPolicy, Variable
from cenote.data import Datasets

ROWS = 400_000
BLOCK = 100_000

SCRIPT = [
    """```python
print(datasets.head("readings", 4))

def tidy(frame):
    frame["celsius"] = frame["celsius"].astype(float)
    return frame

print(tidy(datasets.head("readings", 4)).dtypes["celsius"])
datasets.put("tidy", tidy)
print(datasets.map("readings", "tidy", into="tidied", batch_size=50_000))
```""",
    """Three rows fail: their values are no numbers. I leave those out, and keep sums, which can be added up.

```python
import pandas as pd

def sums(frame):
    frame["celsius"] = pd.to_numeric(frame["celsius"], errors="coerce")
    frame = frame.dropna(subset=["celsius"])
    return frame.groupby("station")["celsius"].agg(["sum", "count"])

datasets.put("sums", sums)
report = datasets.map("readings", "sums", into="sums", batch_size=50_000)
print(report["rows"], report["failed_rows"])
total = datasets.load("sums").groupby("station").sum()
means = {station: round(mean, 2) for station, mean in (total["sum"] / total["count"]).items()}
print(means)
```""",
    "The stations' means are in `means`.",
]


def readings(first: int, rows: int) -> pa.Table:
    """Readings of three stations in turn. One in 150,000 has a text instead of the number."""
    numbers = range(first, first + rows)
    celsius = [
        "broken" if number % 150_000 == 100 else f"{10 + number % 3 + number % 10 / 10:.1f}"
        for number in numbers
    ]
    return pa.table(
        {"station": [("north", "south", "west")[number % 3] for number in numbers], "celsius": celsius}
    )


async def main() -> None:
    """Prints the results of the agent's functions on all rows, and how much of that its model has read."""
    ray.init(
        ignore_reinit_error=True, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    blocks = [
        readings(first, BLOCK) for first in range(0, ROWS, BLOCK)
    ]  # with your own data: ray.data.read_parquet("s3://...")
    datasets = Datasets(
        {"readings": ray.data.from_arrow(blocks)}, sandbox=SandboxPolicy(memory="512MiB"), jails=1
    )
    with PythonRuntime(variables=[Variable("datasets", datasets, host=True)]) as runtime:
        agent = CaveAgent(choose_model(SCRIPT), runtime=runtime)
        response = await agent.run(f"`datasets` has {ROWS} `readings`. Find the mean of each station.")
        print("answer:", response.content)
        print("means:", runtime.retrieve("means"))
        print("rows that were left out:", datasets["tidied.failed"].count())
        print(
            f"the model read {response.token_usage.prompt_tokens // 1000}k tokens in {response.steps_taken} steps"
        )


if __name__ == "__main__":
    asyncio.run(main())
