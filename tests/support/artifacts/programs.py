"""Histories that can be predicted without running: what each step writes follows from what it reads."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cenote.harness.patching.patched_history import LineStep
from cenote_worker.execution.trace import ABSENT, Location, StepTrace, Version, file, name
from cenote_worker.history.step import StepRecord


@dataclass(frozen=True)
class Write:
    """Writes this text to a file."""

    path: str
    text: str


@dataclass(frozen=True)
class Edit:
    """Appends a text to a file, and the value of a variable, if one is named."""

    path: str
    text: str
    using: str = ""


@dataclass(frozen=True)
class Derive:
    """Makes a variable or a file from others."""

    target: str
    sources: tuple[str, ...]


Operation = Write | Edit | Derive
Store = dict[Location, str]


def place(key: str) -> Location:
    return file(key) if "." in key else name(key)


def operation_of(code: str) -> Operation:
    """The operation of a step's code: one of the above as it is written, or the cell that writes a file."""
    first, _, rest = code.partition("\n")
    if first.startswith("%%writefile "):
        return Write(first.removeprefix("%%writefile "), rest)
    kind, *arguments = ast.literal_eval(code)
    return {"Write": Write, "Edit": Edit, "Derive": Derive}[kind](*arguments)


def code_of(operation: Operation) -> str:
    match operation:
        case Write(path, text):
            return repr(("Write", path, text))
        case Edit(path, text, using):
            return repr(("Edit", path, text, using))
        case Derive(target, sources):
            return repr(("Derive", target, sources))


def run(codes: Sequence[str], origins: Sequence[int] = ()) -> tuple[list[StepRecord], Store]:
    """The records of a full run, and the state at its end. origins: of the steps, if they stand for others."""
    store: Store = {}
    records = []
    for number, code in enumerate(codes, 1):
        reads, (target, value) = _effect(operation_of(code), store)
        trace = StepTrace(
            reads=MappingProxyType({each: _version(store.get(each)) for each in reads}),
            writes=MappingProxyType({target: _version(value)}),
        )
        store[target] = value
        origin = origins[number - 1] if origins else 0
        records.append(StepRecord(number=number, parent=number - 1, origin=origin, code=code, trace=trace))
    return records, store


def codes_of(line: Sequence[LineStep]) -> list[str]:
    return [step.code for step in line]


def _effect(operation: Operation, store: Store) -> tuple[list[Location], tuple[Location, str]]:
    match operation:
        case Write(path, text):
            return [], (place(path), text)
        case Edit(path, text, using):
            reads = [place(path), *([place(using)] if using else [])]
            return reads, (place(path), "".join((*(store.get(each, "") for each in reads), text)))
        case Derive(target, sources):
            reads = [place(each) for each in sources]
            return reads, (place(target), repr([target, *(store.get(each, "") for each in reads)]))


def _version(value: str | None) -> Version:
    return ABSENT if value is None else Version(hashlib.md5(value.encode()).hexdigest()[:8])
