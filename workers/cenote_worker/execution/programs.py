"""Data about a program beside a namespace, for both sides of the wall: how to start it, and how it ended."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Self

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS


NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""Exit codes for programs that could not be started, as shells give them."""

MAX_SPEC: Final = 4 * 2**20
"""Bytes. The kernel allows arguments and environment two mebibytes together."""

MAX_REPORT: Final = 4096
"""Bytes of one message of an attendant."""


@dataclass(frozen=True, kw_only=True)
class ProgramSpec:
    """A program to be started.

    argv: its name, looked up in PATH, and its arguments; empty for work on files. env: added to the variables of the
    jail. cwd: its folder, relative to the working directory; that itself by default. terminal: whether its streams
    are one terminal. files: work on files instead, as `zygote.warden.file_operations` knows it.
    """

    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    terminal: bool = False
    files: Mapping[str, object] | None = None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode("ascii")

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        fields = json.loads(data)
        fields["argv"] = tuple(fields["argv"])
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class ProgramOrder:
    """A program as its client requests it.

    has_input: whether its input can be written; else it is empty. timeout: seconds. rows, columns: of its terminal.
    shown: its description in its step; empty for a program that changes nothing, which is no step. cause: for the
    history.
    """

    spec: ProgramSpec
    has_input: bool = False
    timeout: float | None = None
    rows: int = 24
    columns: int = 80
    shown: str = ""
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class ProgramEnd:
    """How a program ended.

    exit_code: None where a signal ended it, or it is not known. killed_by: what ended it, if it did not exit: `signal
    11`, `timeout`, `kill`, `rollback`, `jail`; empty if it exited. duration: seconds.
    """

    exit_code: int | None
    killed_by: str = ""
    duration: float = 0.0


class KeptOutput:
    """The beginning and the end of a stream that is too long, and how much is between them."""

    def __init__(self, most: int) -> None:
        self._head_room = most - most // 2
        self._tail_room = most // 2
        self._head = bytearray()
        self._tail = deque[bytes]()
        self._tail_size = 0
        self.omitted = 0
        self.seen = 0

    def add(self, data: bytes) -> None:
        self.seen += len(data)
        fits = data[: self._head_room - len(self._head)]
        self._head += fits
        if rest := data[len(fits) :]:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail_size > self._tail_room:
            over = self._tail_size - self._tail_room
            first = self._tail.popleft()
            if len(first) > over:
                self._tail.appendleft(first[over:])
            gone = min(over, len(first))
            self._tail_size -= gone
            self.omitted += gone

    def whole(self) -> bytes:
        return b"".join((self._head, *self._tail))
