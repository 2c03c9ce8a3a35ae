"""Data analysis with a plot: a DataFrame stays in the jail, numbers and a PNG come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pandas as pd
from model_choice import choose_model

from cenote import CaveAgent
from cenote.runtime import PythonRuntime, Variable

FOLDER = Path("demo-output")

SCRIPT = [
    "```python\nsales.info()\nprint(sales.groupby('region')['revenue'].sum().sort_values())\n```",
    """```python
import io
import matplotlib.pyplot as plt

monthly = sales.pivot_table(index="month", columns="region", values="revenue", aggfunc="sum")
axes = monthly.plot(marker="o", title="Revenue by month")
axes.set_ylabel("EUR")
buffer = io.BytesIO()
axes.figure.savefig(buffer, format="png")
figure = buffer.getvalue()
best = monthly.sum().idxmax()
print(best, len(figure) > 0)
```""",
    "The north leads over the half-year; the figure shows it pulling ahead from April on.",
]


def sales() -> pd.DataFrame:
    """Half a year of revenue in two regions."""
    revenue = {"north": [10.0, 11.5, 11.0, 14.2, 15.8, 17.1], "south": [12.0, 11.8, 11.1, 11.9, 12.3, 12.0]}
    rows = [
        (month, region, 1000 * value)
        for region, column in revenue.items()
        for month, value in enumerate(column, 1)
    ]
    return pd.DataFrame(rows, columns=["month", "region", "revenue"])


def save(png: bytes) -> Path:
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "revenue.png"
    path.write_bytes(png)
    return path


async def main() -> None:
    variables = [
        Variable("sales", sales(), "Revenue by month and region, in EUR"),
        Variable("figure", b"", "Store the figure here, as the bytes of a PNG"),
        Variable("best", "", "Store the name of the best region here"),
    ]
    with PythonRuntime(variables=variables) as runtime:
        agent = CaveAgent(choose_model(SCRIPT), runtime=runtime)
        response = await agent.run("Plot revenue by month for each region, and name the best region")
        print("answer:", response.content)
        print("best:", runtime.retrieve("best"))
        print("figure:", save(runtime.retrieve("figure")))


asyncio.run(main())
