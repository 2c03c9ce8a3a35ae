"""States described by the cells that lead there from the latest copy: cells that do the same whenever they run.

A copy costs a fork, and the cells after it each page that they write to: milliseconds for a namespace with some
libraries, often more than the cell. So none is made while the cells since the latest copy can be run again in less
time than copies would have taken. The process that continues from such a state runs them without output, and compares
their results with the former ones; differences are reported. If results cannot be compared, or may differ according
to the code, a copy is made as usual.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import xxhash

from cenote_worker.execution.trace import ANYTHING, Location, StepTrace, key_of, kind_of
from cenote_worker.jail.cells.cell_tracking import CellUses
from cenote_worker.jail.process.authors import Turn, TurnState
from cenote_worker.jail.snapshots.deltas.plain_values_unsafe import packed, unpacked
from cenote_worker.jail.snapshots.protocol import CELLS, MAX_BINDINGS
from cenote_worker.jail.tracking.fingerprint import is_unique
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MOST_CELLS: Final = 128
"""Cells run again for one state."""

PER_COPY: Final = 20.0
"""How many times longer than a copy the cells may take without one: the copy would be a twentieth of them."""

COSTS: Final = 3.0
"""The total cost of a copy, as a multiple of making it: pages written after it are copied, and it ends."""

LONGEST: Final = 1.5
"""Seconds of CPU time for cells that are run again after a crash, so that a busy machine makes no more copies."""

SLOW: Final = 0.25
"""Seconds from which on a copy is better than such cells, once nothing waits for it."""

LONGEST_WAIT: Final = 5.0
"""Seconds of wall time for them, as when they sleep."""

_LIBRARIES: Final = frozenset(
    (
        "asyncio", "concurrent", "ctypes", "duckdb", "_duckdb", "fcntl", "gc", "multiprocessing", "mmap", "psutil",
        "resource", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "_thread",
        "tracemalloc", "weakref",
    )
)  # fmt: skip
"""With these libraries a cell may have state outside of the namespace, or depend on when it runs."""

_TIMED: Final = frozenset(
    ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV", "cross_validate",
     "learning_curve")
)  # fmt: skip
"""Classes and functions of scikit-learn whose results have in them how long the work took."""

_WORDS: Final = _TIMED | frozenset(
    ("id", "getrefcount", "getsizeof", "getppid", "getpgid", "getsid", "gettid", "input", "times")
)
"""Words that show data of this process, or of this run only."""

_Left = list[tuple[Location, bytes]]

_STATES: Final = frozenset(("name", "import", "hidden"))
_OUTPUTS: Final = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayableCell:
    """left: all that it has written, with digests of the versions. seconds: of CPU time. wait: of wall time."""

    step: int
    code: str
    turn: Turn
    left: _Left
    seconds: float
    wait: float = 0.0


def replayable(
    trace: StepTrace | None,
    uses: CellUses,
    *,
    step: int,
    code: str,
    turn: Turn,
    seconds: float,
    wait: float,
) -> ReplayableCell | None:
    """None for a cell that may give another result next time, or one that cannot be compared.

    trace: of a finished cell.
    """
    if trace is None or trace.opaque or trace.unrepeatable or trace.unseen or ANYTHING in trace.reads:
        return None
    if not (uses.libraries.isdisjoint(_LIBRARIES) and uses.words.isdisjoint(_WORDS)) or seconds > LONGEST:
        return None
    if any(kind.type.rpartition(".")[2] in _TIMED for kind in trace.kinds.values()):
        return None
    if any(kind_of(each) not in _STATES or is_unique(version) for each, version in trace.writes.items()):
        return None
    return ReplayableCell(step=step, code=code, turn=turn, left=_left_by(trace), seconds=seconds, wait=wait)


def _left_by(trace: StepTrace) -> _Left:
    return [(each, xxhash.xxh3_64_digest(version.encode())) for each, version in sorted(trace.writes.items())]


@dataclass(slots=True)
class ReplayLog:
    """The cells since the latest copy.

    is_told: whether any state was described by them. is_whole: whether nothing else has changed the state since.
    """

    is_told: bool = False
    is_whole: bool = True
    _cells: list[ReplayableCell] = field(default_factory=list)

    def add(self, cell: ReplayableCell | None) -> None:
        if cell is None or len(self._cells) >= MOST_CELLS:
            self.is_whole = False
        else:
            self._cells.append(cell)

    @property
    def is_slow(self) -> bool:
        """Whether they describe a state that they would take long to make again."""
        return self.is_told and self.is_whole and sum(each.seconds for each in self._cells) > SLOW

    def may_tell(self, copy_seconds: float) -> bool:
        """Whether they may describe the current state. copy_seconds: CPU time that making a copy takes."""
        allowed = min(LONGEST, PER_COPY * COSTS * copy_seconds)
        return (
            self.is_whole
            and sum(each.seconds for each in self._cells) <= allowed
            and sum(each.wait for each in self._cells) <= LONGEST_WAIT
        )

    def told(self, copy_seconds: float) -> bytes | None:
        """The cells to run in a fork of the copy; None if another copy is better. copy_seconds: see `may_tell`."""
        if not self.may_tell(copy_seconds):
            return None
        data = CELLS + packed([(each.step, each.code, each.turn, each.left) for each in self._cells])
        return data if len(data) <= MAX_BINDINGS else None


def is_told_by_cells(bindings: bytes) -> bool:
    return bindings.startswith(CELLS)


def with_turn(turn: TurnState | None, bindings: bytes) -> bytes:
    """What turns the state of a copy into another, and that state's turn. Cells keep their beginning."""
    data = packed((turn, bindings))
    return CELLS + data if is_told_by_cells(bindings) else data


def turn_and_bindings(data: bytes) -> tuple[TurnState | None, bytes]:
    """What `with_turn` got. Raises ValueError, EOFError and TypeError for other data."""
    turn, bindings = unpacked(data.removeprefix(CELLS))
    return turn, bindings


def run_again(bindings: bytes, run: Callable[[str, int, Turn], StepTrace | None]) -> tuple[str, ...]:
    """Runs the cells. Returns what differs, a line each. run: gets the code, the number and the turn of a cell.

    Raises ValueError when one fails, and also EOFError and TypeError for data that is not from `ReplayLog.told`.
    """
    amiss = dict[Location, str]()
    for step, code, turn, left in unpacked(bindings.removeprefix(CELLS)):
        trace = run(code, step, turn)
        if trace is None:
            raise ValueError(f"cell {step} has failed, which it did not before")
        was, now = dict(left), dict(_left_by(trace))
        for each in sorted(was.keys() | now.keys()):
            if was.get(each) != now.get(each):
                amiss[each] = (
                    f"{key_of(each)}: cell {step} was run again to bring it back, and left something else"
                )
    return tuple(amiss.values())


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Discards what C code prints. Raises OSError."""
    kept = [os.dup(each) for each in _OUTPUTS]
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for each in _OUTPUTS:
            os.dup2(nowhere, each)
        yield
    finally:
        os.close(nowhere)
        for former, each in zip(kept, _OUTPUTS, strict=True):
            os.dup2(former, each)
            os.close(former)
