"""An agent's events as a person reads them: what the model says, the code, what came of it, the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote.terminal.screen import BOLD, CYAN, DIM, GREEN, RED, YELLOW, Screen

if TYPE_CHECKING:
    from cenote.agent import Event

# Headings of the events that get a block of their own, with the styles of heading and content.
BLOCKS = {
    "code": ("code", CYAN, ""),
    "patch": ("patch", CYAN, ""),
    "execution_output": ("output", DIM, DIM),
    "execution_output_exceeded": ("output, cut", DIM, DIM),
    "execution_error": ("error", RED, RED),
    "security_error": ("refused", YELLOW, YELLOW),
    "compacting": ("compacting", DIM, DIM),
    "compacted": ("compacted", DIM, DIM),
    "final_response": ("answer", GREEN, ""),
    "max_steps_reached": ("out of steps", RED, ""),
}


class TranscriptPrinter:
    """Prints the events of one agent, in order. `name` heads each block where several agents take turns."""

    def __init__(self, screen: Screen, name: str = "") -> None:
        self._screen = screen
        self._name = name
        self._said = ""

    def show(self, event: Event) -> None:
        """Prints one event; a final answer that was already streamed as text is not printed twice."""
        kind = event.type.value
        if kind == "stopped":
            self._stopped(event.content)
        elif kind == "text":
            self._say(event.content)
        elif kind in ("final_response", "max_steps_reached") and event.content.strip() == self._said.strip():
            self._screen.end_line()
            self._said = ""
        elif kind in BLOCKS:
            self._block(*BLOCKS[kind], event.content)

    def _stopped(self, reason: str) -> None:
        """How a run ended that has no answer, unless the event before has said it."""
        if reason not in ("completed", "max_steps"):
            self._screen.end_line()
            self._block("ended without an answer", RED, "", reason)

    def _say(self, text: str) -> None:
        if not self._said:
            text = text.lstrip()
            if text:
                self._screen.line()
                self._head("")
        self._said += text
        self._screen.write(text)

    def _block(self, heading: str, heading_style: str, style: str, content: str) -> None:
        self._said = ""
        self._head(heading, heading_style)
        if content.strip():
            self._screen.line(content.strip("\n"), *filter(None, (style,)))

    def _head(self, heading: str, *styles: str) -> None:
        words = ": ".join(filter(None, (self._name, heading)))
        if words:
            self._screen.line(f"--- {words}", BOLD, *styles)
