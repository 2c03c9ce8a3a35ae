"""What a model is shown of a patch: what ran again, and what is different now. What is as it was costs no tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cenote.agent import prompts
from cenote.agent.exchange import lines
from cenote.agent.observation import NOTHING, error_line, observe
from cenote.harness.apply import ApplyResult
from cenote.harness.spoken import named
from cenote_worker.history.step import StepRecord
from cenote_worker.results import ExecutionResult
from cenote_worker.trace import Version, key_of, kind_of


def refusal(result: ApplyResult) -> str:
    """Why nothing was patched; empty if it was."""
    if result.failure is not None and result.failure.error is not None:
        error = error_line(result.failure.error, result.failure.code)
        return prompts.PATCH_FAILED.format(number=_named(result.failure), error=error)
    if result.blocked is not None:
        return prompts.PATCH_BLOCKED.format(reason=result.blocked)
    return "" if result.status == "applied" else prompts.PATCH_CANCELLED


def ran_again(before: Sequence[StepRecord], result: ApplyResult) -> list[StepRecord]:
    """The steps that were run by applying it. before: the line as it was."""
    return [record for record in result.records if record.outcome == "executed" and _is_new(record, before)]


def report(before: Sequence[StepRecord], result: ApplyResult) -> str:
    """What became of an applied patch. before: the line as it was."""
    ran = ran_again(before, result)
    kept = [record for record in result.records if record.outcome == "reused"]
    was = {record.number: record for record in before}
    files = _changed_files(before, result.records)
    different = [record for record in ran if _shown(record) != _shown(was.get(record.origin))]
    return lines(
        prompts.PATCHED.format(
            ran=f"Ran step{_s(ran)} {_numbers(record.number for record in ran)}"
            if ran
            else "Nothing had to run",
            kept=f", kept {_numbers(record.number for record in kept)}" if kept else "",
        ),
        _renumbered(result.records, before),
        f"Changed: {named(result.changed)}." if result.changed else "",
        f"Changed files: {named(files)}." if files else "",
        *(_output(record) for record in different),
        "" if different or result.changed or files else prompts.PATCH_SAME,
    )


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


def _named(record: StepRecord) -> int:
    """The number by which the model knows a step whose new one was taken back."""
    return record.origin or record.number


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


def _output(record: StepRecord) -> str:
    output, error = _shown(record) or ("", "")
    text = output or ("" if error else NOTHING)
    return lines(f"Output of step {record.number}:", text, prompts.ERROR.format(error=error) if error else "")


def _renumbered(records: Sequence[StepRecord], before: Sequence[StepRecord]) -> str:
    new = [
        f"{record.origin} is {record.number}"
        for record in records
        if record.origin and _is_new(record, before)
    ]
    return prompts.RENUMBERED.format(numbers=", ".join(new)) if new else ""


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _s(items: Sequence[object]) -> str:
    return "" if len(items) == 1 else "s"
