"""What is said of a program beside a namespace, on both sides of the wall: how it begins, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Self

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""Exit codes of what could not be begun, as shells give them."""

MAX_SPEC: Final = 4 * 2**20
"""Bytes. The kernel lets arguments and environment have two mebibytes together."""

MAX_REPORT: Final = 4096
"""Bytes of what an attendant says at once."""


@dataclass(frozen=True, kw_only=True)
class ProgramSpec:
    """A program to be begun.

    argv: its name, looked up in PATH, and its arguments; empty for work on files. env: added to the variables of the
    jail. cwd: its folder, relative to the working directory; that itself by default. terminal: whether its streams
    are one terminal. files: work on files instead, as `in_jail.file_work` knows it.
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
    """A program as its client asks for it.

    has_input: whether its input can be written; else it is empty. timeout: seconds. rows, columns: of its terminal.
    """

    spec: ProgramSpec
    has_input: bool = False
    timeout: float | None = None
    rows: int = 24
    columns: int = 80


@dataclass(frozen=True, kw_only=True)
class ProgramEnd:
    """How a program ended.

    exit_code: None where a signal ended it, or nobody knows. killed_by: what ended it, if it did not exit: `signal
    11`, `timeout`, `kill`, `rollback`, `jail`; empty if it exited. duration: seconds.
    """

    exit_code: int | None
    killed_by: str = ""
    duration: float = 0.0
