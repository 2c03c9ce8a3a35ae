"""One patch of the model: read, planned, checked by the rules, applied, and turned into what the model is shown."""

from __future__ import annotations

from collections.abc import Sequence

from cenote.agent.decide.cell import CellFlow
from cenote.agent.decide.limits import RunLedger, RunStoppedError
from cenote.agent.parse.patch_block import MalformedPatchError, PatchBlock, read_patch
from cenote.agent.prompt import prompts
from cenote.agent.prompt.cell_reports import BlockExchange, lines
from cenote.agent.prompt.patch_reports import (
    FirstNumbers,
    PatchReport,
    build_report,
    ran_again,
    refusal,
    report,
    seconds_of,
)
from cenote.agent.vocabulary.commands import (
    ApplyPlan,
    ArtifactsBuilt,
    BuildArtifacts,
    CheckCode,
    Checked,
    Emit,
    Flow,
    PlanApplied,
    Planned,
    PlanPatch,
    ask,
)
from cenote.agent.vocabulary.events import EventType, news
from cenote.harness.planning.plan import Plan
from cenote_worker.history.step import StepRecord

_MAX_REPORT = 1500
"""Characters of a report. Outputs that are different can be many; each further call pays for them again."""

_SHORT = 120
"""Characters of outputs that take no more than where they are to be found."""


class PatchRunner:
    """Applies patches and adds them, with what they gave, to the conversation."""

    def __init__(self, exchange: BlockExchange, numbers: FirstNumbers, cells: CellFlow) -> None:
        self._exchange = exchange
        self._numbers = numbers
        self._cells = cells

    def run(self, answer: str, text: str, ledger: RunLedger, note: str) -> Flow[str | None]:
        """Do what `text` says, the patch block of `answer`; gives the text of `reply(...)`, or None.

        note: a line for the model, added to what it is shown; may be empty.
        """
        self._exchange.said(answer, f"patch of {text.strip()}")
        try:
            return (yield from self._run(text, ledger, note))
        except (GeneratorExit, RunStoppedError):
            self._exchange.broken_off(prompts.PATCH_INTERRUPTED)
            raise

    def _run(self, text: str, ledger: RunLedger, note: str) -> Flow[str | None]:
        try:
            block = read_patch(text)
        except MalformedPatchError as error:
            yield from self._not_patched(error.reason, ledger, note)
            return None
        planned = yield from ask(PlanPatch(block.patch(ledger.cause)), Planned)
        if planned.plan is None:
            yield from self._not_patched(planned.refusal, ledger, note)
            return None
        violations = yield from _violations(planned.plan)
        if violations:
            ledger.book_error(refused := "\n".join(violations))
            yield from self._exchange.refuse(refused, note)
            return None
        return (yield from self._apply(planned.plan, block, ledger, note))

    def _apply(self, plan: Plan, block: PatchBlock, ledger: RunLedger, note: str) -> Flow[str | None]:
        applied = yield from ask(ApplyPlan(plan), PlanApplied)
        if applied.result is None:
            yield from self._not_patched(applied.refusal, ledger, note)
            return None
        result = applied.result
        before = plan.course.records
        ran = ran_again(before, result)
        ledger.book_cell(sum(record.duration for record in ran))
        if problem := refusal(result, self._numbers):
            yield from self._failed(problem, ledger, note)
            return None
        self._numbers.learn(before)
        self._numbers.learn(result.records)
        built = (yield from _built(ledger)) if block.artifact else ""
        found = report(before, result, self._numbers)
        whole = lines(found.whole, built)
        self._exchange.outcome = (whole,)
        shown, exceeded = yield from self._told(found, built, goes_on=bool(block.then))
        kind = EventType.EXECUTION_OUTPUT_EXCEEDED if exceeded else EventType.EXECUTION_OUTPUT
        yield Emit(news(kind, shown))
        self._exchange.heard(shown if block.then else lines(shown, note), shown)
        if not block.then:
            return _reply(ran)
        reply = yield from self._cells.go_on(block.then, ledger, note)
        self._exchange.outcome = (whole, *self._exchange.outcome)
        return reply

    def _told(self, found: PatchReport, built: str, *, goes_on: bool) -> Flow[tuple[str, bool]]:
        """What the model is shown of an applied patch, and whether that is not all.

        goes_on: it has code of its own that shows what it wants to see, so that of long outputs it is enough where
        they are.
        """
        whole = lines(found.whole, built)
        if not goes_on or len(found.outputs) <= _SHORT:
            return (yield from self._exchange.fitted(whole, _MAX_REPORT))
        handle = yield from self._exchange.keep(whole)
        differ = prompts.OUTPUTS_DIFFER.format(numbers=found.steps, handle=handle)
        return lines(found.head, differ, built), True

    def _not_patched(self, reason: str, ledger: RunLedger, note: str) -> Flow[None]:
        yield from self._failed(prompts.NOT_PATCHED.format(reason=reason), ledger, note)

    def _failed(self, text: str, ledger: RunLedger, note: str) -> Flow[None]:
        ledger.book_error(text)
        self._exchange.outcome = (text,)
        yield Emit(news(EventType.EXECUTION_ERROR, text))
        self._exchange.heard(lines(text, note), text)


def _built(ledger: RunLedger) -> Flow[str]:
    """What came of bringing up to date what an artifact concerns, for the model."""
    built = yield from ask(BuildArtifacts(), ArtifactsBuilt)
    if built.result is None:
        return prompts.NOT_BUILT.format(reason=built.refusal) if built.refusal else ""
    ledger.book_cell(seconds_of(built.result))
    return build_report(built.result)


def _violations(plan: Plan) -> Flow[tuple[str, ...]]:
    """What the rules have against steps that the patch changes. All others were checked when they were first run."""
    found: tuple[str, ...] = ()
    for step in plan.course.line:
        if step.change:
            found += (yield from ask(CheckCode(step.code), Checked)).violations
    return found


def _reply(ran: Sequence[StepRecord]) -> str | None:
    """Of the last step that was run again and gave one."""
    replies = (record.reply for record in reversed(ran) if record.status == "ok")
    return next((reply for reply in replies if reply is not None), None)
