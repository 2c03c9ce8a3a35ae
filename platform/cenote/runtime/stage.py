"""A runtime as slices of it are verified: in this process, or elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from cenote.runtime.listeners import BlockingListener
from cenote.runtime.replies import value
from cenote_worker.history.step import StepRecord
from cenote_worker.hosted.rehearsal import Rehearsal, RehearsalRequest, put_in
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.supervisor.requests import Listener, Outcome


class Values(Protocol):
    """A runtime as its values are looked at; see Backend."""

    def start(self) -> None: ...

    def fetch(self, name: str, listener: Listener, *, opaque: bool) -> None: ...

    def resume(self) -> None: ...


class StageLine(Protocol):
    """The way to where programs are tried."""

    def put_in(self) -> Mapping[int, frozenset[str]]:
        """See cenote_worker.hosted.rehearsal.put_in."""

    def rehearse(self, request: RehearsalRequest) -> Outcome:
        """Blocks. A ValueReply, whose content is the caller's, or an error."""


class StageHere:
    """See StageLine. The runtime is in this process."""

    def __init__(self, runtime: HostedRuntime) -> None:
        self._runtime = runtime

    def put_in(self) -> Mapping[int, frozenset[str]]:
        return put_in(self._runtime)

    def rehearse(self, request: RehearsalRequest) -> Outcome:
        rehearsal = Rehearsal(self._runtime, request)
        try:
            return rehearsal.value()
        finally:
            rehearsal.close()


class RuntimeStage:
    """See Stage."""

    def __init__(self, present: Values, line: StageLine, classes: dict[str, type]) -> None:
        """present: the runtime itself. classes: that values are rebuilt of."""
        self._present = present
        self._line = line
        self._classes = classes
        self._kept: Mapping[int, frozenset[str]] | None = None

    def keeps(self, step: int) -> Collection[str]:
        if self._kept is None:  # asked once: it is for one verification
            self._kept = self._line.put_in()
        return self._kept.get(step, frozenset())

    def present(self, name: str) -> object:
        self._present.start()
        listener = BlockingListener()
        self._present.fetch(name, listener, opaque=False)
        return self._value(listener.wait(self._present.resume), name)

    def again(self, source: str, records: Sequence[StepRecord], name: str, seconds: float) -> object:
        steps = tuple(record.number for record in records)
        request = RehearsalRequest(source=source, steps=steps, name=name, seconds=seconds)
        return self._value(self._line.rehearse(request), name)

    def _value(self, outcome: Outcome, name: str) -> object:
        found: object = value(outcome, name, self._classes, (), trusted=False)
        return found
