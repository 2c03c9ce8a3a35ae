"""States that a model gives labels to, and goes back to, from its own code."""

from __future__ import annotations

from typing import Literal

from cenote.agent import prompts
from cenote.agent.namespace_functions import NamespaceFunctions, install
from cenote.agent.port import AgentRuntime, ReversibleRuntime
from cenote_security.errors import NotKeptError, UnavailableError

MAX_LABEL = 100
"""Characters of a label."""


class StateLabels(NamespaceFunctions):
    """The labels of one agent. What its code asks for while a cell runs is done by `settle`, behind it."""

    def __init__(self) -> None:
        self._labels: dict[str, None] = {}
        self._pending: list[tuple[Literal["keep", "return"], str]] = []

    async def install(self, runtime: AgentRuntime) -> str:
        """Put both functions into a runtime; gives what the model is told of them."""
        checkpoint = await install(runtime, self.checkpoint, "idempotent")
        rollback = await install(runtime, self.rollback, "idempotent")
        return prompts.CHECKPOINTS_HINT.format(checkpoint=checkpoint, rollback=rollback)

    def checkpoint(self, label: str) -> str:
        """Keep the state as it is when this block has ended."""
        if not isinstance(label, str) or not 0 < len(label) <= MAX_LABEL:
            raise ValueError(f"a label is a text of 1 to {MAX_LABEL} characters")
        self._pending.append(("keep", label))
        return f"the state is kept as {label!r} when this block has ended"

    def rollback(self, label: str) -> str:
        """Go back to a kept state when this block has ended."""
        if label not in self._labels:
            known = ", ".join(map(repr, self._labels)) or "none"
            raise LookupError(f"no state is kept as {label!r}; there are {known}")
        self._pending.append(("return", label))
        return f"back to {label!r} when this block has ended"

    async def settle(self, runtime: ReversibleRuntime) -> tuple[str, ...]:
        """Do what the last cell has asked for, in its order; gives what happened, for the model."""
        pending, self._pending = self._pending, []
        return tuple([await self._do(runtime, deed, label) for deed, label in pending])

    async def _do(self, runtime: ReversibleRuntime, deed: Literal["keep", "return"], label: str) -> str:
        try:
            if deed == "keep":
                await runtime.snapshot(label)
                self._labels[label] = None
                return prompts.CHECKPOINT_KEPT.format(label=label)
            back = await runtime.rollback(label)
        except NotKeptError:
            self._labels.pop(label, None)
            return prompts.CHECKPOINT_GONE.format(label=label)
        except UnavailableError as error:
            return prompts.CHECKPOINT_REFUSED.format(label=label, reason=error)
        severed = prompts.SEVERED.format(names=", ".join(back.severed)) if back.severed else ""
        return prompts.ROLLED_BACK.format(label=label) + severed
