"""Agents as variables: an orchestrator passes data to two others and collects their results.

Each agent has its own jail. Values go from jail to jail; no model's context ever holds the data.
"""

from __future__ import annotations

import asyncio

from model_choice import choose_model

from cenote import CaveAgent
from cenote.runtime import PythonRuntime, Variable

RAW = [12.5, None, 14.1, -999.0, 13.3, 12.9, None, 15.2]

ORCHESTRATOR = [
    """```python
cleaner.runtime.update_variable("data", raw_data)
print(await cleaner.run("Put the plausible readings of `data` into `cleaned_data`."))
analyzer.runtime.update_variable("data", cleaner.runtime.share("cleaned_data"))
print(await analyzer.run("Put count, mean and range of `data` into `insights`."))
show(analyzer.runtime.retrieve("insights"))
```""",
    "Both agents are done; the figures are in the analyzer's `insights`.",
]
CLEANER = [
    """```python
cleaned_data = [x for x in data if x is not None and x > -100]
print(len(data), len(cleaned_data))
```""",
    "Three of the eight readings were missing or impossible; five are left.",
]
ANALYZER = [
    """```python
insights = {"count": len(data), "mean": sum(data) / len(data), "range": [min(data), max(data)]}
show(insights)
```""",
    "The figures are in `insights`.",
]


async def main() -> None:
    cleaner_runtime = PythonRuntime(
        variables=[Variable("data", [], "Input"), Variable("cleaned_data", [], "Output")]
    )
    analyzer_runtime = PythonRuntime(
        variables=[Variable("data", [], "Input"), Variable("insights", {}, "Output")]
    )
    with cleaner_runtime, analyzer_runtime:
        cleaner = CaveAgent(choose_model(CLEANER), runtime=cleaner_runtime)
        analyzer = CaveAgent(choose_model(ANALYZER), runtime=analyzer_runtime)
        orchestrator_runtime = PythonRuntime(
            variables=[
                Variable("raw_data", RAW, "Raw dataset"),
                Variable("cleaner", cleaner, "Cleaner agent"),
                Variable("analyzer", analyzer, "Analyzer agent"),
            ]
        )
        with orchestrator_runtime:
            orchestrator = CaveAgent(choose_model(ORCHESTRATOR), runtime=orchestrator_runtime)
            response = await orchestrator.run("Clean raw_data using cleaner, then analyze using analyzer")
        print("answer:", response.content)
        print("insights:", analyzer_runtime.retrieve("insights"))


asyncio.run(main())
