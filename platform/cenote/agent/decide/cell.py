"""One block of the model: checked, run, and turned into what the model is shown of it."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.agent.decide.limits import RunLedger, RunStoppedError
from cenote.agent.parse.patch_block import LANGUAGE
from cenote.agent.prompt import prompts
from cenote.agent.prompt.cell_reports import BlockExchange, diagnosis_text, lines, namespace_delta
from cenote.agent.prompt.observation import NOTHING, observe
from cenote.agent.prompt.patch_reports import FirstNumbers
from cenote.agent.vocabulary.commands import (
    CellEnded,
    CheckCode,
    Checked,
    DescribeRuntime,
    Diagnose,
    Diagnosed,
    Emit,
    ExecuteCode,
    Flow,
    RuntimeDescription,
    Settled,
    SettleLabels,
    SettleSkills,
    ask,
)
from cenote.agent.vocabulary.events import EventType, news
from cenote_worker.execution.results import ExecutionResult, VariableInfo

_PATCH_BLOCK = f"```{LANGUAGE}\n"
_WORTH_A_PATCH = 5
"""Blocks from which on a model is told how to patch, though none has failed: it may see a mistake by itself. A few
blocks are as soon written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """How cells are run and told of. See `CaveAgent`. max_rollbacks: 0 for cells that are never taken back.

    patch_hint: how steps are patched; empty where they cannot be.
    """

    namespace_delta: bool = False
    has_skills: bool = False
    has_labels: bool = False
    max_rollbacks: int = 0
    patch_hint: str = ""


class CellFlow:
    """Runs blocks and adds them, with what they gave, to the conversation."""

    def __init__(self, exchange: BlockExchange, settings: CellSettings, numbers: FirstNumbers) -> None:
        self._exchange = exchange
        self._settings = settings
        self._numbers = numbers
        self._seen: tuple[VariableInfo, ...] = ()
        self._rollbacks_left = 0

    def begin(self, scene: RuntimeDescription) -> None:
        """A task begins with these variables; what blocks change is told against them."""
        self._seen = scene.described
        self._rollbacks_left = self._settings.max_rollbacks

    def run(self, answer: str, code: str, ledger: RunLedger, note: str) -> Flow[str | None]:
        """Run `code`, the block of `answer`; gives the text of `reply(...)`, or None.

        note: a line for the model, added to what it is shown; may be empty.
        """
        self._exchange.said(answer, _headline(code))
        try:
            return (yield from self._run(code, ledger, note))
        except (GeneratorExit, RunStoppedError):
            self._exchange.broken_off(prompts.INTERRUPTED)
            raise

    def patch_hint(self) -> str:
        """How steps are patched, unless the conversation shows it already."""
        return "" if self._exchange.mentions(_PATCH_BLOCK) else self._settings.patch_hint

    def go_on(self, code: str, ledger: RunLedger, note: str) -> Flow[str | None]:
        """As `run`, for code that the same answer has after something else."""
        self._exchange.goes_on()
        yield Emit(news(EventType.CODE, code))
        try:
            return (yield from self._run(code, ledger, note))
        except (GeneratorExit, RunStoppedError):
            self._exchange.heard(prompts.INTERRUPTED, prompts.INTERRUPTED)
            raise

    def _run(self, code: str, ledger: RunLedger, note: str) -> Flow[str | None]:
        checked = yield from ask(CheckCode(code), Checked)
        if checked.violations:
            ledger.book_error(refused := "\n".join(checked.violations))
            yield from self._exchange.refuse(refused, note)
            return None
        atomic = self._rollbacks_left > 0
        result = (yield from ask(ExecuteCode(code, ledger.cause, atomic), CellEnded)).result
        ledger.book_cell(result.duration)
        if result.error is not None:
            ledger.book_error(f"{result.error.type}: {result.error.message}")
        note = lines(*(f"[{line}]" for line in (*result.notices, *result.news)), note)
        if result.error is not None and result.error.reason == "policy":
            yield from self._exchange.refuse(result.error.message, note)
            return None
        if atomic and result.state == "rolled_back":
            self._rollbacks_left -= 1
            note = lines("" if self._rollbacks_left else prompts.LAST_ROLLBACK, note)
        yield from self._show(result, code, note)
        return result.reply if result.success else None

    def _show(self, result: ExecutionResult, code: str, note: str) -> Flow[None]:
        seen = observe(result, code)
        self._exchange.outcome = (seen.output, seen.error)
        shown = seen.output or ("" if seen.error else NOTHING)
        shown, exceeded = yield from self._exchange.fitted(shown)
        yield from _announce(shown, seen.error, exceeded)
        if number := self._number(result):
            silent = not (seen.output or seen.error)
            head = (prompts.STEP_SILENT if silent else prompts.STEP).format(number=number)
            output = lines(head, seen.output and shown)
        else:
            output = prompts.OUTPUT.format(output=shown) if seen.output else shown
        error = prompts.ERROR.format(error=seen.error) if seen.error else ""
        after = yield from self._aftermath(result)
        self._exchange.heard(lines(output, error, after, note), seen.error or seen.output or "ok")

    def _aftermath(self, result: ExecutionResult) -> Flow[str]:
        """What else a model must know about the namespace."""
        parts = []
        if self._settings.patch_hint and result.step and not result.success:
            found = (yield from ask(Diagnose(result.step), Diagnosed)).diagnosis
            parts.append(diagnosis_text(self._numbers.of(found)) if found else "")
        if self._number(result) and (not result.success or self._exchange.blocks >= _WORTH_A_PATCH):
            parts.append(self.patch_hint())
        if result.state == "lost":
            scene = yield from ask(DescribeRuntime(), RuntimeDescription)
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
        return lines(*parts)

    def _number(self, result: ExecutionResult) -> int:
        """The number by which a patch can name the step; 0 where none can."""
        # A step that was undone is on no line that a patch could change.
        return result.step if self._settings.patch_hint and result.state == "kept" else 0

    def _delta(self) -> Flow[str]:
        scene = yield from ask(DescribeRuntime(), RuntimeDescription)
        line = namespace_delta(self._seen, scene.described)
        self._seen = scene.described
        return f"[{line}]" if line else ""


def _announce(shown: str, error: str, exceeded: bool) -> Flow[None]:
    if exceeded:
        yield Emit(news(EventType.EXECUTION_OUTPUT_EXCEEDED, shown))
        if error:
            yield Emit(news(EventType.EXECUTION_ERROR, error))
    elif error:
        yield Emit(news(EventType.EXECUTION_ERROR, lines(shown, error)))
    else:
        yield Emit(news(EventType.EXECUTION_OUTPUT, shown))


def _headline(code: str) -> str:
    """The line that says most about a block: its first comment, else its first statement that imports nothing."""
    written = [line.strip() for line in code.split("\n") if line.strip()]
    comments = [line.lstrip("# ") for line in written if line.startswith("#")]
    others = [line for line in written if not line.startswith(("import ", "from "))]
    return (comments + others + written + [""])[0]
