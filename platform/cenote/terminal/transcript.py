"""An agent's events as a person reads them: what the model says, the code, what came of it, the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote.terminal.screen import BOLD, CYAN, DIM, GREEN, RED, YELLOW, Screen

if TYPE_CHECKING:
    from cenote.agent import Event

# Headings and styles of the events that get a block of their own.
HEADINGS = {
    "code": ("code", CYAN),
    "execution_output": ("output", DIM),
    "execution_output_exceeded": ("output, cut", DIM),
    "execution_error": ("error", RED),
    "security_error": ("refused", YELLOW),
    "compacting": ("compacting", DIM),
    "compacted": ("compacted", DIM),
    "final_response": ("answer", GREEN),
    "max_steps_reached": ("stopped", RED),
}


class Transcript:
    """Prints the events of one agent, in order. `name` heads each block where several agents take turns."""

    def __init__(self, screen: Screen, name: str = "") -> None:
        self._screen = screen
        self._name = f"{name}: " if name else ""
        self._said = ""

    def show(self, event: Event) -> None:
        """Prints one event; a final answer that was already streamed as text is not printed twice."""
        kind = event.type.value
        if kind == "text":
            self._said += event.content
            self._screen.write(event.content)
        elif kind == "final_response" and event.content.strip() == self._said.strip():
            self._screen.line()
        elif kind in HEADINGS:
            self._block(*HEADINGS[kind], event.content)

    def _block(self, heading: str, style: str, content: str) -> None:
        self._said = ""
        self._screen.line(f"--- {self._name}{heading}", BOLD, style)
        if content.strip():
            self._screen.line(content.strip("\n"), *((style,) if style in (DIM, RED, YELLOW) else ()))
