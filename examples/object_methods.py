"""Objects with methods: the agent calls them like any Python code, and you get the changed objects back.

The objects are copied into the jail, with their classes. `retrieve` rebuilds them here from plain data: their
classes were injected, so they count as named by you; a class that the model made up would be refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from model_choice import choose_model

from cenote import CaveAgent
from cenote.runtime import PythonRuntime, Type, Variable

SCRIPT = [
    "```python\nlight.dim(20)\nthermostat.set(22)\nprint(light, thermostat)\n```",
    "The living room is dimmed to 20% and the thermostat is set to 22 °C.",
]


@dataclass
class Light:
    """A light that can be dimmed."""

    name: str
    brightness: int = 100

    def dim(self, percent: int) -> None:
        """Set the brightness, 0 to 100"""
        if not 0 <= percent <= 100:
            raise ValueError(f"brightness is 0 to 100, not {percent}")
        self.brightness = percent


@dataclass
class Thermostat:
    """A thermostat for the whole home."""

    celsius: float = 19.0

    def set(self, celsius: float) -> None:
        """Set the wanted temperature"""
        self.celsius = celsius


async def main() -> None:
    runtime = PythonRuntime(
        types=[Type(Light), Type(Thermostat)],
        variables=[
            Variable("light", Light("Living Room"), "Smart light"),
            Variable("thermostat", Thermostat(), "Home thermostat"),
        ],
    )
    with runtime:
        agent = CaveAgent(choose_model(SCRIPT), runtime=runtime)
        response = await agent.run("Dim the light to 20% and set thermostat to 22°C")
        print("answer:", response.content)
        print("light:", runtime.retrieve("light"))
        print("thermostat:", runtime.retrieve("thermostat"))


asyncio.run(main())
