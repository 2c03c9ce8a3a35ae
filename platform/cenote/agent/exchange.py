"""What passes between a model and its runtime, as the conversation keeps it: blocks, and what came of them."""

from __future__ import annotations

from cenote.agent import prompts
from cenote.agent.conversation import Conversation
from cenote.agent.events import EventType, news
from cenote.agent.flow import Emit, Flow, KeepOutput, Kept, ask
from cenote.agent.history import Entry, Kind
from cenote.agent.observation import cut
from cenote_security.printable import printable

_MAX_BRIEF = 100
"""Characters of the short form of a block or its output."""


class Exchange:
    """Adds blocks and outputs to a conversation, in turns. max_output: characters that the model is shown of one."""

    def __init__(self, conversation: Conversation, max_output: int) -> None:
        self._conversation = conversation
        self._max_output = max_output
        self._blocks = 0
        self.outcome: tuple[str, ...] = ()
        """What came of the last block, in full: equal where nothing is different."""

    def number_on(self, other: Exchange) -> None:
        """Its blocks are numbered on behind the other's, of which its conversation is a copy."""
        self._blocks = other._blocks

    def said(self, answer: str, headline: str) -> None:
        """The model answered with a block. headline: what says most about it."""
        self._blocks += 1
        self._add(Kind.CODE, answer, headline)

    def heard(self, text: str, outcome: str) -> None:
        """What the model is shown of its block. outcome: what says most about that.

        Names, reasons and code of other authors are in it besides outputs.
        """
        self._add(Kind.OUTPUT, printable(text, lines=True), printable(outcome, lines=True))

    def refuse(self, violations: str, note: str) -> Flow[None]:
        """The block breaks rules, and nothing of it ran."""
        yield Emit(news(EventType.SECURITY_ERROR, violations))
        self.outcome = (violations,)
        text = prompts.BLOCKED.format(violations=violations)
        self.heard(lines(text, note), text)

    def broken_off(self, text: str) -> None:
        """Nobody waits for the block any more. The model is shown this, unless it was shown what came of it."""
        if self._conversation.entries[-1].kind is Kind.CODE:
            self.heard(text, text)

    def fitted(self, text: str) -> Flow[tuple[str, bool]]:
        """As much of an output as is shown, and whether that is not all; the whole is kept then."""
        if len(text) <= self._max_output:
            return text, False
        kept = yield from ask(KeepOutput(self._blocks, text), Kept)
        return cut(text, self._max_output, kept.handle), True

    def _add(self, kind: Kind, text: str, brief: str) -> None:
        self._conversation.add(Entry(kind=kind, text=text, cell=self._blocks, brief=_shorten(brief)))


def lines(*parts: str) -> str:
    """Those that are not empty, one under the other."""
    return "\n".join(part for part in parts if part)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_BRIEF else line[: _MAX_BRIEF - 3] + "..."
