"""Where a value comes from: the steps and model calls that it depends on, and the program that they make."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.harness.past import Past
from cenote.harness.step import Step
from cenote.harness.symbols import location_of
from cenote_worker.history.dependencies import Inputs, looked_at
from cenote_worker.history.step import START, StepRecord
from cenote_worker.trace import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """steps: whose results the value depends on, in the order in which they ran. causes: their model calls.

    program: their code. With what was there at the start, and what clients have put in, it gives the value again.
    unknown: steps of which not everything is known; because of them everything before the last of them is included.
    """

    symbol: str
    steps: tuple[Step, ...]
    causes: tuple[str, ...]
    program: str
    unknown: tuple[int, ...] = ()


def slice_of(past: Past, symbol: str, end: int) -> Slice:
    """Raises UnknownNameError for what nothing on the line can have written."""
    location = location_of(symbol)
    needed, reach = _needed(past, location, end)
    line = past.line(end)  # a step's place in it is its depth
    unknown = [each.number for each in line[:reach] if each.stays and each.unknown]
    records = [each for each in line[:reach] if each.stays]
    records += [each for each in line[reach:] if each.number in needed]
    causes = dict.fromkeys(each.cause for each in records if each.cause)
    return Slice(
        symbol=symbol,
        steps=past.steps(records),
        causes=tuple(causes),
        program="\n\n".join(map(_text, records)),
        unknown=tuple(unknown),
    )


def _needed(past: Past, location: Location, end: int) -> tuple[set[int], int]:
    """The steps that were seen to be needed, and how far from the start everything is, for want of knowledge."""
    record, doubtful = past.writer(location, end)
    reach = past.depth(doubtful[-1]) if doubtful else 0
    needed: set[int] = set()
    waiting = [record.number] if record is not None else []
    while waiting:
        number = waiting.pop()
        if number in needed:
            continue
        needed.add(number)
        inputs = past.inputs(number)
        reach = max(reach, _doubt(past, number, inputs))
        waiting.extend(inputs.seen.values())
    return needed, reach


def _doubt(past: Past, number: int, inputs: Inputs) -> int:
    """The depth up to which any step may have had a part in this one's result; 0 when all is known."""
    record = past.get(number)
    if record.unknown:
        return past.depth(number)
    if inputs.shadow == START:
        return 0
    shadow = past.depth(inputs.shadow)
    lacking = len(inputs.seen) < len(looked_at(record))
    older = any(past.depth(writer) < shadow for writer in inputs.seen.values())
    return shadow if lacking or older else 0


def _text(record: StepRecord) -> str:
    if record.kind == "cell":
        return record.code
    who = record.author or "the owner"
    names = ", ".join(record.names)
    match record.kind:
        case "injection":
            return f"# {names}: put in by {who} as step {record.number}"
        case "deletion":
            return f"del {names}"
        case "upload":
            return f"# {names}: a file that {who} uploaded as step {record.number}"
        case "removal":
            return f"# {names}: a file that {who} removed as step {record.number}"
    return f"# whatever ran up to step {record.number}: nothing is recorded of it"
