"""A skill: instructions that a model reads and functions that it gets only when it needs them.

Until then the prompt holds one line about the skill. `activate_skill` returns the text of SKILL.md and injects what
`injection.py` exports.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from model_choice import choose_model

from cenote import CaveAgent
from cenote.runtime import PythonRuntime, Variable

SCRIPT = [
    "```python\nprint(activate_skill('data-processor'))\n```",
    "```python\nresult = analyze_data(readings)\nprint(result)\n```",
    "One of the readings is an outlier: 48.0. Without it the mean is 20.5.",
]


async def main() -> None:
    readings = [20.1, 21.3, 19.8, 48.0, 20.7, 20.6]
    with PythonRuntime(variables=[Variable("readings", readings, "Temperatures in Celsius")]) as runtime:
        agent = CaveAgent(choose_model(SCRIPT), runtime=runtime, skills_dir=Path(__file__).parent / "skills")
        response = await agent.run("Is there an outlier in my readings?")
        print("answer:", response.content)
        print("result:", runtime.retrieve("result"))


asyncio.run(main())
