"""What passes between a model and its runtime, as the conversation keeps it: blocks, and what came of them."""

from __future__ import annotations

from cenote.agent import prompts
from cenote.agent.conversation import Conversation
from cenote.agent.events import EventType, news
from cenote.agent.flow import Emit, Flow, KeepOutput, Kept, ask
from cenote.agent.history import Entry, Kind, shorten
from cenote.agent.observation import cut
from cenote_security.printable import printable


class Exchange:
    """Adds blocks and outputs to a conversation, in turns. max_output: characters of one output
    that the model is shown; preview: of one that is longer."""

    def __init__(self, conversation: Conversation, max_output: int, preview: int | None = None) -> None:
        self._conversation = conversation
        self._max_output = max_output
        self._preview = max_output if preview is None else min(preview, max_output)
        self._blocks = 0
        self.outcome: tuple[str, ...] = ()
        """What came of the last block, in full: equal where nothing is different."""

    @property
    def blocks(self) -> int:
        """How many blocks have numbers."""
        return self._blocks

    def number_on(self, blocks: int) -> None:
        """So many blocks of the conversation have numbers already."""
        self._blocks = blocks

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
        return cut(text, self._preview, kept.handle), True

    def _add(self, kind: Kind, text: str, brief: str) -> None:
        self._conversation.add(Entry(kind=kind, text=text, cell=self._blocks, brief=shorten(brief)))


def lines(*parts: str) -> str:
    """Those that are not empty, one under the other."""
    return "\n".join(part for part in parts if part)
