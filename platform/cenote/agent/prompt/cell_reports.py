"""What a model is shown of its blocks: outputs, changes of the namespace, why a step failed."""

from __future__ import annotations

from collections.abc import Sequence

from cenote.agent.prompt import prompts
from cenote.agent.prompt.observation import cut
from cenote.agent.prompt.stubs import type_name
from cenote.agent.vocabulary.commands import Emit, Flow, KeepOutput, OutputKept, ask
from cenote.agent.vocabulary.conversation import Conversation, ConversationEntry, Kind, shorten
from cenote.agent.vocabulary.events import EventType, news
from cenote.harness.questions.diagnosis import Diagnosis, Origin
from cenote.harness.record.location_text import shown
from cenote_security.printable import printable
from cenote_worker.execution.results import VariableInfo


class BlockExchange:
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

    def mentions(self, text: str) -> bool:
        """Whether this stands in the conversation, and has not been folded away."""
        return any(text in entry.text for entry in self._conversation.entries)

    def said(self, answer: str, headline: str) -> None:
        """The model answered with a block. headline: what says most about it."""
        self._blocks += 1
        self._add(Kind.CODE, answer, headline)

    def goes_on(self) -> None:
        """More of the same answer runs; its output gets a number of its own."""
        self._blocks += 1

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
        """The wait for the block was broken off. The model is shown this, unless it was shown what came of it."""
        if self._conversation.entries[-1].kind is Kind.CODE:
            self.heard(text, text)

    def fitted(self, text: str, limit: int | None = None) -> Flow[tuple[str, bool]]:
        """As much of an output as is shown, and whether that is not all; the whole is kept then.

        limit: characters, where they are fewer than an output's.
        """
        room = self._max_output if limit is None else min(limit, self._max_output)
        if len(text) <= room:
            return text, False
        return cut(text, min(self._preview, room), (yield from self.keep(text))), True

    def keep(self, text: str) -> Flow[str]:
        """Keeps a text for code to read; gives an expression for it."""
        return (yield from ask(KeepOutput(self._blocks, text), OutputKept)).handle

    def _add(self, kind: Kind, text: str, brief: str) -> None:
        self._conversation.add(
            ConversationEntry(kind=kind, text=text, cell=self._blocks, brief=shorten(brief))
        )


def lines(*parts: str) -> str:
    """Those that are not empty, one under the other."""
    return "\n".join(part for part in parts if part)


_MAX_NAMES = 20
"""Names in one line; a block that makes more of them has made something else than variables to remember."""


def namespace_delta(before: Sequence[VariableInfo], after: Sequence[VariableInfo]) -> str:
    """`+ df DataFrame (344, 8); ~ n int; - tmp`: new, changed and removed variables; empty if there are none.

    Changed is what looks different from outside: another type, shape, size or description. Names come out of a jail:
    only names pass.
    """
    old, new = ({info.name: info for info in known if info.name.isidentifier()} for known in (before, after))
    parts = [f"+ {_text(info)}" for name, info in new.items() if name not in old]
    parts += [f"~ {_text(info)}" for name, info in new.items() if name in old and old[name] != info]
    parts += [f"- {shown(name)}" for name in old if name not in new]
    more = [f"... and {len(parts) - _MAX_NAMES} more"] if len(parts) > _MAX_NAMES else []
    return "; ".join(parts[:_MAX_NAMES] + more)


def _text(info: VariableInfo) -> str:
    kind = type_name(info)
    return f"{shown(info.name)} {kind} {info.shape}" if info.shape else f"{shown(info.name)} {kind}"


_MAX_ORIGINS = 5
"""Nearest first: what is further away than these explains little."""

_MAX_LINE = 100
"""Characters that are quoted of code."""


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """A few lines; empty when nothing is known that the error itself does not say."""
    # Builtins, and names that the step was to make, are made by no step either: only what the error misses is told.
    missed = diagnosis.error.message
    known = [origin for origin in diagnosis.origins if origin.step or f"'{origin.name}'" in missed]
    if not known:
        return ""
    source = f"`{_quoted(diagnosis.source)}`" if diagnosis.source.strip() else f"step {diagnosis.step}"
    origins = "\n".join(map(_line, known[:_MAX_ORIGINS]))
    return prompts.DIAGNOSIS.format(source=source, origins=origins)


def _line(origin: Origin) -> str:
    """`df: step 2 (ana), df = read()`."""
    if not origin.step:
        return f"{origin.name}: no step makes it"
    author = f" ({origin.author})" if origin.author else ""
    if origin.missing:
        return f"{origin.name}: removed by step {origin.step}{author}"
    code = _quoted(origin.code)
    return f"{origin.name}: step {origin.step}{author}, {code or 'changed in place'}"


def _quoted(code: str) -> str:
    first, _, more = code.strip().partition("\n")
    return f"{first[:_MAX_LINE]} ..." if more or len(first) > _MAX_LINE else first
