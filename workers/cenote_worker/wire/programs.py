"""Programs beside a namespace as messages, and back."""

from __future__ import annotations

import json
from typing import Final

from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import ProtocolViolation, UsageError
from cenote_worker.execution.programs import MAX_SPEC, ProgramEnd, ProgramOrder, ProgramSpec

MAX_NAME: Final = 200
"""Characters of a runtime's or a client's name."""

MAX_SHOWN: Final = 8_000
MAX_CELLS: Final = 1_000
MAX_KILLED_BY: Final = 100


def start_of(order: ProgramOrder, runtime: str, client: str) -> runtime_pb2.ProcessInput:
    """The first message of a stream."""
    spec = order.spec
    start = make(
        runtime_pb2.ProcessStart,
        runtime=runtime,
        client=client,
        argv=[_encoded(each) for each in spec.argv],
        env=[
            runtime_pb2.ProcessVariable(name=_encoded(name), value=_encoded(value))
            for name, value in spec.env.items()
        ],
        cwd=_encoded(spec.cwd),
        has_input=order.has_input,
        timeout=order.timeout or 0.0,
        shown=order.shown,
        cause=order.cause,
        files=b"" if spec.files is None else json.dumps(spec.files).encode(),
    )
    if spec.terminal:
        start.terminal.rows, start.terminal.columns = order.rows, order.columns
    return runtime_pb2.ProcessInput(start=start)


def check_start(first: runtime_pb2.ProcessInput) -> runtime_pb2.ProcessStart:
    """Raises ProtocolViolation if it is not the first message of a stream, UsageError for an invalid program."""
    if not first.HasField("start"):
        raise ProtocolViolation("a process begins with its start")
    start = first.start
    if not 0 < len(start.client) <= MAX_NAME or len(start.runtime) > MAX_NAME:
        raise ProtocolViolation(f"names of runtimes and clients have at most {MAX_NAME} characters")
    texts = [*start.argv, start.cwd, *(part for each in start.env for part in (each.name, each.value))]
    if any(b"\0" in text for text in texts):
        raise UsageError("no program can be given a zero byte")
    if not (start.argv and start.argv[0]) and not start.files:
        raise UsageError("a program has a name")
    if any(not each.name or b"=" in each.name for each in start.env):
        raise UsageError("a variable's name is not empty and has no '='")
    if len(start.shown) > MAX_SHOWN or len(start.cause) > MAX_SHOWN or start.ByteSize() > MAX_SPEC:
        raise UsageError(f"a command and its environment have at most {MAX_SPEC} bytes together")
    if not 0 <= start.timeout < float("inf"):
        raise UsageError("a timeout is a number of seconds")
    if start.HasField("terminal"):
        check_size(start.terminal)
    return start


def check_size(size: runtime_pb2.TerminalSize) -> None:
    """Raises UsageError."""
    if not (0 < size.rows <= MAX_CELLS and 0 < size.columns <= MAX_CELLS):
        raise UsageError(f"a terminal has 1 to {MAX_CELLS} rows and columns")


def order_of(start: runtime_pb2.ProcessStart) -> ProgramOrder:
    """The order of a checked start. Raises UsageError."""
    spec = ProgramSpec(
        argv=tuple(map(_decoded, start.argv)),
        env={_decoded(each.name): _decoded(each.value) for each in start.env},
        cwd=_decoded(start.cwd),
        terminal=start.HasField("terminal"),
        files=_files(start.files) if start.files else None,
    )
    return ProgramOrder(
        spec=spec,
        has_input=start.has_input,
        timeout=start.timeout or None,
        rows=start.terminal.rows or 24,
        columns=start.terminal.columns or 80,
        shown=start.shown,
        cause=start.cause,
    )


def from_end(end: ProgramEnd) -> runtime_pb2.ProcessEnd:
    return make(
        runtime_pb2.ProcessEnd,
        exited=end.exit_code is not None,
        exit_code=end.exit_code or 0,
        killed_by=end.killed_by,
        duration=end.duration,
    )


def to_end(message: runtime_pb2.ProcessEnd) -> ProgramEnd:
    return ProgramEnd(
        exit_code=message.exit_code if message.exited else None,
        killed_by=message.killed_by[:MAX_KILLED_BY],
        duration=message.duration,
    )


def refusal(error: Exception | None) -> runtime_pb2.InputTaken:
    return runtime_pb2.InputTaken(refusal="" if error is None else utf8_text(str(error)))


def _files(data: bytes) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("work on files is a JSON object")
    return found


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
