"""Hand-written histories for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from cenote.harness import ExecutionState
from cenote_worker.execution.trace import ABSENT, StepTrace, ValueKind, Version, name
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord


class Line:
    """Consecutive steps, from 1 on, with the given traces."""

    def __init__(self, *begun: str) -> None:
        self.history = History()
        self.history.begins_with(begun)
        self.state = ExecutionState(lambda: self.history)

    def run(
        self,
        code: str = "",
        *,
        reads: Iterable[str] = (),
        writes: Iterable[str] = (),
        deletes: Iterable[str] = (),
        version: str = "",
        groups: Iterable[Iterable[str]] = (),
        kinds: Mapping[str, str] | None = None,
        **more: Any,
    ) -> int:
        """A step with a complete trace. version: of the written names, its own by default. groups: names that share
        objects. kinds: types of the written names.
        """
        number = self.history.tree.last + 1
        written = dict.fromkeys(map(name, writes), Version(version or f"v{number}"))
        written |= dict.fromkeys(map(name, deletes), ABSENT)
        read = {name(each): Version("") for each in reads}
        trace = StepTrace(
            reads=MappingProxyType(read),
            writes=MappingProxyType(written),
            groups=tuple(frozenset(map(name, group)) for group in groups),
            kinds={name(each): ValueKind(type=kind) for each, kind in (kinds or {}).items()},
        )
        self.history.prepare()  # as when a cell is sent
        self.history.ended(StepRecord(number=number, code=code, trace=trace, **more))
        return number

    def blind(self, code: str = "", **more: Any) -> int:
        """A step without a trace."""
        number = self.history.tree.last + 1
        self.history.ended(StepRecord(number=number, code=code, **more))
        return number

    def rollback(self, step: int) -> None:
        self.history.moved(step, "rollback")
