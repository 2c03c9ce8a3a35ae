"""One block of the model: checked, run, and turned into what the model is shown of it."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.agent import prompts
from cenote.agent.conversation import Conversation
from cenote.agent.events import Event, EventType
from cenote.agent.flow import (
    CellEnded,
    CheckCode,
    Checked,
    Emit,
    ExecuteCode,
    Flow,
    KeepOutput,
    Kept,
    Look,
    Scene,
    Settled,
    SettleLabels,
    SettleSkills,
    ask,
)
from cenote.agent.history import Entry, Kind
from cenote.agent.ledger import Ledger
from cenote.agent.namespace_delta import namespace_delta
from cenote.agent.observation import NOTHING, Observation, cut, observe
from cenote_worker.results import ExecutionResult, VariableInfo

_MAX_BRIEF = 100
"""Characters of the short form of a block or its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """How cells are run and shown. See `CaveAgent`. max_rollbacks: 0 for cells that are never taken back."""

    max_output: int = 5000
    namespace_delta: bool = False
    has_skills: bool = False
    has_labels: bool = False
    max_rollbacks: int = 0


class CellRunner:
    """Runs blocks and adds them, with what they gave, to the conversation."""

    def __init__(self, conversation: Conversation, settings: CellSettings) -> None:
        self._conversation = conversation
        self._settings = settings
        self._cells = 0
        self._seen: tuple[VariableInfo, ...] = ()
        self._rollbacks_left = 0

    def begin(self, scene: Scene) -> None:
        """A task begins with these variables; what blocks change is told against them."""
        self._seen = scene.described
        self._rollbacks_left = self._settings.max_rollbacks

    def branch(self, conversation: Conversation) -> CellRunner:
        """For a copy of the conversation: its cells are numbered on."""
        branch = CellRunner(conversation, self._settings)
        branch._cells = self._cells
        return branch

    def run(self, answer: str, code: str, ledger: Ledger, note: str) -> Flow[str | None]:
        """Run `code`, the block of `answer`; gives the text of `reply(...)`, or None.

        note: a line for the model, added to what it is shown; may be empty.
        """
        self._cells += 1
        self._add(Kind.CODE, answer, brief=_headline(code))
        try:
            return (yield from self._run(code, ledger, note))
        except GeneratorExit:
            if self._conversation.entries[-1].kind is Kind.CODE:
                self._add(Kind.OUTPUT, prompts.INTERRUPTED, brief=prompts.INTERRUPTED)
            raise

    def _run(self, code: str, ledger: Ledger, note: str) -> Flow[str | None]:
        checked = yield from ask(CheckCode(code), Checked)
        if checked.violations:
            yield from self._refuse("\n".join(checked.violations), note)
            return None
        atomic = self._rollbacks_left > 0
        result = (yield from ask(ExecuteCode(code, atomic), CellEnded)).result
        ledger.book_cell(result.duration)
        note = _lines(*(f"[{line}]" for line in (*result.notices, *result.news)), note)
        if result.error is not None and result.error.reason == "policy":
            yield from self._refuse(result.error.message, note)
            return None
        if atomic and result.state == "rolled_back":
            self._rollbacks_left -= 1
            note = _lines("" if self._rollbacks_left else prompts.LAST_ROLLBACK, note)
        yield from self._show(result, code, note)
        return result.reply if result.success else None

    def _refuse(self, violations: str, note: str) -> Flow[None]:
        yield Emit(Event(EventType.SECURITY_ERROR, violations))
        text = prompts.BLOCKED.format(violations=violations)
        self._add(Kind.OUTPUT, _lines(text, note), brief=_shorten(text))

    def _show(self, result: ExecutionResult, code: str, note: str) -> Flow[None]:
        seen = observe(result, code)
        shown = seen.output or ("" if seen.error else NOTHING)
        exceeded = len(shown) > self._settings.max_output
        if exceeded:
            kept = yield from ask(KeepOutput(self._cells, shown), Kept)
            shown = cut(shown, self._settings.max_output, kept.handle)
        yield from _announce(shown, seen.error, exceeded)
        output = prompts.OUTPUT.format(output=shown) if seen.output else shown
        error = prompts.ERROR.format(error=seen.error) if seen.error else ""
        after = yield from self._aftermath(result)
        self._add(Kind.OUTPUT, _lines(output, error, after, note), brief=_outcome(seen))

    def _aftermath(self, result: ExecutionResult) -> Flow[str]:
        """What else a model must know about the namespace."""
        parts = []
        if result.state == "lost":
            scene = yield from ask(Look(), Scene)
            parts.append(prompts.STATE_LOST.format(names=scene.names))
        elif result.state == "rolled_back":
            parts.append(prompts.STATE_ROLLED_BACK)
        if self._settings.has_skills:
            settled = yield from ask(SettleSkills(), Settled)
            parts.extend(settled.lines)
        if self._settings.has_labels:
            parts.extend((yield from ask(SettleLabels(), Settled)).lines)
        if self._settings.namespace_delta:
            parts.append((yield from self._delta()))
        return _lines(*parts)

    def _delta(self) -> Flow[str]:
        scene = yield from ask(Look(), Scene)
        line = namespace_delta(self._seen, scene.described)
        self._seen = scene.described
        return f"[{line}]" if line else ""

    def _add(self, kind: Kind, text: str, brief: str) -> None:
        self._conversation.add(Entry(kind=kind, text=text, cell=self._cells, brief=brief))


def _announce(shown: str, error: str, exceeded: bool) -> Flow[None]:
    if exceeded:
        yield Emit(Event(EventType.EXECUTION_OUTPUT_EXCEEDED, shown))
        if error:
            yield Emit(Event(EventType.EXECUTION_ERROR, error))
    elif error:
        yield Emit(Event(EventType.EXECUTION_ERROR, _lines(shown, error)))
    else:
        yield Emit(Event(EventType.EXECUTION_OUTPUT, shown))


def _lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def _headline(code: str) -> str:
    """The line that says most about a block: its first comment, else its first statement that imports nothing."""
    lines = [line.strip() for line in code.split("\n") if line.strip()]
    comments = [line.lstrip("# ") for line in lines if line.startswith("#")]
    others = [line for line in lines if not line.startswith(("import ", "from "))]
    return _shorten((comments + others + lines + [""])[0])


def _outcome(seen: Observation) -> str:
    return _shorten(seen.error or seen.output or "ok")


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_BRIEF else line[: _MAX_BRIEF - 3] + "..."
