"""What is told of runtimes to whoever keeps the record of the platform. Values only: no code, values or output."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from typing import Final

from cenote_security.printable import printable
from cenote_worker.counts import Snapshot
from cenote_worker.egress.ledger import Decision
from cenote_worker.results import ExecutionResult

MAX_LINE: Final = 120
"""Characters of the first line of a cell: enough to know it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Of a deed: whose runtime, and what its jails may do. policy: SHA-256 of the serialised policy."""

    tenant: str
    runtime: str
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """What may be said of a cell's code."""

    sha256: str
    size: int
    first_line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDeed:
    """A cell that has ended. token: id of the one that it came with. at: when, in seconds since the epoch."""

    origin: Origin
    token: str
    author: str
    code: Code
    at: float
    step: int
    success: bool
    error: str
    reason: str
    state: str
    wall: float
    cpu: float
    peak_memory: int
    bytes_written: int
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDeed:
    """A jail asked for a way out, or a connection that it was allowed has ended. passed: bytes both ways, then."""

    origin: Origin
    decision: Decision
    passed: int | None = None


Deed = CellDeed | NetworkDeed


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Deeds in the order of their numbers, which one source never uses twice.

    first: number of the first of them; each has one more than the one before. lost: how many right before the first
    were not taken, for want of room. more: whether there are more by now. counts: all that this source has counted.
    """

    source: str
    first: int
    deeds: tuple[Deed, ...]
    lost: int = 0
    more: bool = False
    counts: Snapshot = field(default_factory=Snapshot)

    def __setstate__(self, state: list[object]) -> None:
        """A pickle has values alone, in order; a process of an earlier version has no counts."""
        for kind, value in zip(fields(self), [*state, Snapshot()], strict=False):
            object.__setattr__(self, kind.name, value)


def code_of(text: str) -> Code:
    encoded = text.encode("utf-8", "surrogatepass")
    line = next((line for line in text[: 8 * MAX_LINE].splitlines() if line.strip()), "")
    return Code(
        sha256=hashlib.sha256(encoded).hexdigest(), size=len(encoded), first_line=printable(line[:MAX_LINE])
    )


def cell_deed(origin: Origin, token: str, code: Code, at: float, result: ExecutionResult) -> CellDeed:
    error, usage = result.error, result.usage
    return CellDeed(
        origin=origin,
        token=token,
        author=result.author,
        code=code,
        at=at,
        step=result.step,
        success=result.success,
        error=error.type if error else "",
        reason=(error.reason or "") if error else "",
        state=result.state,
        wall=usage.wall,
        cpu=usage.cpu,
        peak_memory=usage.peak_memory,
        bytes_written=usage.bytes_written,
        output_bytes=usage.output_bytes,
    )
