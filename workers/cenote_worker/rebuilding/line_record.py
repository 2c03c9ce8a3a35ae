"""The steps that led to a state, as they are kept with it: what was done, not what was shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from google.protobuf.message import DecodeError

from cenote_proto.v1 import checkpoint_pb2
from cenote_security.errors import MalformedValueError
from cenote_worker.history.events import Begun
from cenote_worker.history.messages import from_event, to_event
from cenote_worker.history.step import StepRecord
from cenote_worker.rebuilding.line import Line

MAX_LINE: Final = 64 * 2**20
"""Bytes of a line that is kept. What is new of it is written with each checkpoint that has something to rebuild."""


class LineWriter:
    """Writes lines of one history, each mostly the one before and a step more."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[StepRecord, bytes]] = {}

    def write(self, line: Line) -> bytes:
        """Equal beginnings have equal bytes."""
        events = [from_event(Begun(names=line.begun)), *map(self._event, line.steps)]
        return checkpoint_pb2.RecordedLine(events=events).SerializeToString()

    def _event(self, record: StepRecord) -> bytes:
        known = self._written.get(record.number)
        if known is None or known[0] is not record:
            known = self._written[record.number] = record, from_event(_bare(record))
        return known[1]


def read_line(data: bytes) -> Line:
    """Raises MalformedValueError."""
    try:
        begun, *steps = map(to_event, checkpoint_pb2.RecordedLine.FromString(data).events)
    except (DecodeError, ValueError):
        raise MalformedValueError("the steps that are kept with a state cannot be read") from None
    if not isinstance(begun, Begun) or not _are_steps(steps):
        raise MalformedValueError("what is kept with a state is no line of steps")
    return Line(begun.names, tuple(each for each in steps if isinstance(each, StepRecord)))


def _are_steps(events: Iterable[object]) -> bool:
    return all(isinstance(each, StepRecord) for each in events)


def _bare(record: StepRecord) -> StepRecord:
    """Without what it showed."""
    error = replace(record.error, message="", traceback="") if record.error is not None else None
    return replace(record, stdout="", stderr="", value=None, outputs=(), reply=None, error=error)
