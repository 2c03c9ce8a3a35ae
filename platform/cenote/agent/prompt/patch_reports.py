"""What a model is shown of patches and builds: what ran again, what is different now, tests that do not pass.

What is as it was costs no tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from cenote.agent.prompt import prompts
from cenote.agent.prompt.cell_reports import lines
from cenote.agent.prompt.observation import NOTHING, error_line, observe
from cenote.harness.applying.apply import ApplyResult
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.questions.diagnosis import Diagnosis
from cenote.harness.record.location_text import named
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.execution.trace import Version, key_of, kind_of
from cenote_worker.history.events import RanTest
from cenote_worker.history.step import StepRecord

_SAME = 4
"""Lines as before, one after the other, that are not shown again. Fewer are no longer than what stands for them."""


class FirstNumbers:
    """The numbers by which a model knows steps: those that they had first.

    Patches give steps new ones. Who names a step by an earlier one is understood, so that a model learns no others.
    """

    def __init__(self) -> None:
        self._first: dict[int, int] = {}

    def learn(self, records: Iterable[StepRecord]) -> None:
        """Steps of a line, of which some stand for earlier ones."""
        for record in records:
            if record.origin:
                self._first.setdefault(record.number, self.first(record.origin))

    def first(self, number: int) -> int:
        return self._first.get(number, number)

    def of(self, diagnosis: Diagnosis) -> Diagnosis:
        """The same with first numbers."""
        origins = tuple(replace(origin, step=self.first(origin.step)) for origin in diagnosis.origins)
        return replace(diagnosis, step=self.first(diagnosis.step), origins=origins)


def refusal(result: ApplyResult, numbers: FirstNumbers) -> str:
    """Why nothing was patched; empty if it was."""
    if result.failure is not None and result.failure.error is not None:
        error = error_line(result.failure.error, result.failure.code)
        return prompts.PATCH_FAILED.format(number=_named(result.failure, numbers), error=error)
    if result.blocked is not None:
        return prompts.PATCH_BLOCKED.format(reason=result.blocked)
    return "" if result.status == "applied" else prompts.PATCH_CANCELLED


def ran_again(before: Sequence[StepRecord], result: ApplyResult) -> list[StepRecord]:
    """The steps that were run by applying it. before: the line as it was."""
    return [record for record in result.records if record.outcome == "executed" and _is_new(record, before)]


_NAMES = 8
"""Changed names that are listed: a model knows from its own code what depends on what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchReport:
    """What became of an applied patch. head: what ran again and changed. outputs: those that are different now.
    steps: the numbers of their steps."""

    head: str
    outputs: str
    steps: str

    @property
    def whole(self) -> str:
        return lines(self.head, self.outputs)


def report(before: Sequence[StepRecord], result: ApplyResult, numbers: FirstNumbers) -> PatchReport:
    """What became of an applied patch. before: the line as it was."""
    ran = ran_again(before, result)
    was = {record.number: record for record in before}
    files = _changed_files(before, result.records)
    different = [record for record in ran if _shown(record) != _shown(was.get(record.origin))]
    again = prompts.PATCH_RAN.format(numbers=_ranges(_named(record, numbers) for record in ran))
    head = lines(
        prompts.PATCHED.format(ran=again if ran else prompts.PATCH_RAN_NOTHING),
        f"Changed: {_names(result.changed)}." if result.changed else "",
        f"Changed files: {_names(files)}." if files else "",
        "" if different or result.changed or files else prompts.PATCH_SAME,
    )
    return PatchReport(
        head=head,
        outputs=lines(*(_output(record, was.get(record.origin), numbers) for record in different)),
        steps=_ranges(_named(record, numbers) for record in different),
    )


def _names(changed: Sequence[str]) -> str:
    more = len(changed) - _NAMES
    return f"{named(changed[:_NAMES])} and {more} more" if more > 1 else named(changed)


def _changed_files(before: Sequence[StepRecord], after: Sequence[StepRecord]) -> list[str]:
    """Files whose last version is another one now."""
    was = _files(before)
    return sorted(name for name, version in _files(after).items() if was.get(name) != version)


def _files(records: Sequence[StepRecord]) -> dict[str, Version]:
    """The last version of each file that steps have written; folders are not told of."""
    return {
        key_of(place): version
        for record in records
        if record.trace is not None
        for place, version in record.trace.writes.items()
        if kind_of(place) == "file" and key_of(place) != "."
    }


def _is_new(record: StepRecord, before: Sequence[StepRecord]) -> bool:
    return all(record.number != one.number for one in before)


def _named(record: StepRecord, numbers: FirstNumbers) -> int:
    """The number by which the model knows a step, of one whose new number was taken back, too."""
    return numbers.first(record.origin or record.number)


def _shown(record: StepRecord | None) -> tuple[str, str] | None:
    """What a model is shown of a step."""
    if record is None:
        return None
    result = ExecutionResult(
        success=record.status == "ok",
        stdout=record.stdout,
        stderr=record.stderr,
        value=record.value,
        outputs=record.outputs,
        error=record.error,
    )
    seen = observe(result, record.code)
    return seen.output, seen.error


def _output(record: StepRecord, was: StepRecord | None, numbers: FirstNumbers) -> str:
    output, error = _shown(record) or ("", "")
    before, _ = _shown(was) or ("", "")
    text = _difference(before, output) or ("" if error else NOTHING)
    head = prompts.STEP.format(number=_named(record, numbers))
    return lines(head, text, prompts.ERROR.format(error=error) if error else "")


def _difference(before: str, now: str) -> str:
    """The new output without longer parts that are as before."""
    old, new = before.split("\n"), now.split("\n")
    shown, end = list[str](), 0
    for _, start, size in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        shown += new[end:start]
        shown += [prompts.AS_BEFORE.format(count=size)] if size >= _SAME else new[start : start + size]
        end = start + size
    return "\n".join(shown)


def _ranges(numbers: Iterable[int]) -> str:
    """`2, 4-6`."""
    parts = list[list[int]]()
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)


MAX_FAILURES = 5
"""Each has its line; who mends these finds the next."""


def build_report(result: BuildResult) -> str:
    """Empty if there was nothing to do."""
    return lines(_outcome(result), _tests(result), *map(_failure, result.failures[:MAX_FAILURES]))


def seconds_of(result: BuildResult) -> float:
    """That steps and tests took which were run."""
    records = ran_again(result.before, result.applied) if result.applied is not None else []
    steps = sum(record.duration for record in records)
    return steps + sum(test.seconds for test in result.tests if test.step == result.head)


def _outcome(result: BuildResult) -> str:
    applied = result.applied
    if result.status == "built":
        suites = {name.rpartition("::")[0] for name in (*result.ran, *result.spared)}
        made = [name for name in result.rebuilt if name not in suites]
        return prompts.REBUILT.format(names=", ".join(made)) if made else ""
    if applied is not None and applied.failure is not None and applied.failure.error is not None:
        failure = applied.failure
        error = error_line(applied.failure.error, failure.code)
        return prompts.BUILD_FAILED.format(number=failure.origin or failure.number, error=error)
    if applied is not None and applied.blocked is not None:
        return prompts.NOT_BUILT.format(reason=applied.blocked)
    return prompts.NOT_BUILT.format(reason="it was stopped") if result.status == "cancelled" else ""


def _tests(result: BuildResult) -> str:
    if not result.tests:
        return ""
    failed = len(result.failures)
    return prompts.TESTS_RUN.format(
        ran=len(result.ran),
        all=len(result.tests),
        failed=f"{failed} failed" if failed else "all pass",
    )


def _failure(test: RanTest) -> str:
    where = f" ({test.file}, line {test.span[0]})" if test.span else ""
    return f"{test.name}: {test.error_type}: {test.message}{where}"
