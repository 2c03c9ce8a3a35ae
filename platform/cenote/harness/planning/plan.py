"""Plans: which steps a patch would run again, which stay, and why. Nothing has happened yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cenote.harness.patching.patch import Patch
from cenote.harness.planning.replay_state import Carried, Course
from cenote_worker.execution.trace import Location

Strategy = Literal["continue", "snapshot", "checkpoint", "start"]
"""Where the replay begins: the present state; a kept one before the change; a stored one; the very start."""

Action = Literal["rerun", "reuse", "restore"]
"""The step is run again; its result is in place; its result is carried over from a kept state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStep:
    """One step of the patched history.

    number: of the step that it stands for, 0 for a new one. position: in the patched history, from 1.
    reason: one sentence. seconds: how long it took when it was recorded. puts_in: names that a client has put in with
    it: run again, it puts in the same values, of which the record has a copy.
    """

    number: int
    position: int
    action: Action
    reason: str
    seconds: float = 0.0
    puts_in: tuple[str, ...] = ()

    def __str__(self) -> str:
        step = f"step {self.number}" if self.number else "new step"
        if self.puts_in and self.action == "rerun":
            names = ", ".join(f"`{name}`" for name in self.puts_in)
            return f"{step}: {self.action}, which puts in {names} again as it was, since {self.reason}"
        return f"{step}: {self.action}, since {self.reason}"


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockedEffect:
    """An effect outside that a step to run again has had.

    With equal arguments the recorded answer is given; with others, applying stops before the call, and asks.
    """

    number: int
    target: str
    method: str = ""
    arguments: bytes | None = None

    def __str__(self) -> str:
        called = f"{self.target}.{self.method}" if self.method else self.target
        return f"step {self.number} calls {called}, which has an effect outside: with other arguments, applying stops"


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Plan:
    """What is expected of applying a patch. Versions decide when it is applied: it may turn out cheaper.

    head: the step that the patched line ends with. base: the step whose state is begun from.
    steps: the whole patched history. carried: groups that are brought over from kept states.
    blocked: effects of steps to run again. seconds: expected of those, from what was recorded.
    packages: a sentence where steps to run again were recorded with other packages than those that jails have now;
    else empty.
    """

    patch: Patch
    head: int
    strategy: Strategy
    course: Course
    steps: tuple[PlannedStep, ...]
    carried: tuple[Carried, ...] = ()
    blocked: tuple[BlockedEffect, ...] = ()
    seconds: float = 0.0
    packages: str = ""

    def __repr__(self) -> str:
        return f"<Plan: {self._beginning()}; explain() has a line for each>"

    @property
    def base(self) -> int:
        return self.course.base

    @property
    def rerun(self) -> tuple[PlannedStep, ...]:
        """Steps to run again, and new ones."""
        return tuple(step for step in self.steps if step.action == "rerun")

    @property
    def reused(self) -> tuple[PlannedStep, ...]:
        """All steps that are not run again, those to be restored among them."""
        return tuple(step for step in self.steps if step.action != "rerun")

    @property
    def restored(self) -> tuple[PlannedStep, ...]:
        """Of the reused ones, those whose results are brought over from a kept state."""
        return tuple(step for step in self.steps if step.action == "restore")

    @property
    def moved(self) -> frozenset[Location]:
        """All locations that are brought over."""
        return frozenset[Location]().union(*(one.locations for one in self.carried))

    def explain(self) -> str:
        """The plan for people and models, a line for each step."""
        lines = [self._beginning(), *(str(step) for step in self.steps if not self._plain(step))]
        plain = sum(1 for step in self.steps if self._plain(step))
        if plain:
            lines.insert(1, f"{plain} step{'s' if plain > 1 else ''} before the change: kept")
        return "\n".join([*lines, *(str(effect) for effect in self.blocked), *filter(None, [self.packages])])

    def _plain(self, step: PlannedStep) -> bool:
        return step.action == "reuse" and step.position <= self.course.fork

    def _beginning(self) -> str:
        wheres = {
            "continue": "from the present state",
            "snapshot": f"from the kept state after step {self.base}",
            "checkpoint": f"from the checkpoint after step {self.base}",
            "start": "from the start",
        }
        total = len(self.rerun)
        return f"{total} step{'' if total == 1 else 's'} to run, about {self.seconds:.1f} s, {wheres[self.strategy]}"
