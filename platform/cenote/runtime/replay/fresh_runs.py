"""Histories and slices run in a fresh runtime beside the one that has them, in this process or on a platform."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from cenote.harness.planning.replay_target import EffectNotRepeatedError
from cenote.harness.record.location_text import named
from cenote.runtime.core.listeners import BlockingListener
from cenote.runtime.core.replies import value
from cenote.runtime.replay.replay_target import RuntimeReplayTarget
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.history.step import START, StepRecord
from cenote_worker.runtime.jail_requests import WorkdirRequest
from cenote_worker.runtime.recorder import admit_all
from cenote_worker.runtime.replay import write_all, written_by
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.scratch_runtime import (
    FullRun,
    FullRunWatch,
    RecordedHosts,
    Rehearsal,
    RehearsalRequest,
    fresh_beside,
    not_in_full,
    put_in,
)
from cenote_worker.supervisor.requests import Listener, Outcome


class InspectedRuntime(Protocol):
    """A runtime as its variables and files are compared; see Backend."""

    def describe(self, listener: Listener) -> None: ...

    def fetch(self, name: str, listener: Listener, *, opaque: bool) -> None: ...

    def file(self, ask: WorkdirRequest, listener: Listener) -> None: ...

    def resume(self) -> None: ...


Ran = tuple[InspectedRuntime, Sequence[StepRecord]]
"""A runtime in which a history has run, and the steps there, up to one that would have called outside what was not
recorded."""


class FullRunClient(Protocol):
    """The way to where histories are run in full."""

    def not_in_full(self) -> str:
        """See cenote_worker.runtime.scratch_runtime."""

    def in_full(self, head: int, cancelled: Callable[[], bool]) -> AbstractContextManager[Ran]:
        """What has come of the line to this step. cancelled: is asked before each. Raises CenoteError."""


class LocalFullRuns:
    """See FullRunClient. The runtime is in this process."""

    def __init__(self, runtime: HostedRuntime) -> None:
        self._runtime = runtime

    def not_in_full(self) -> str:
        return not_in_full(self._runtime)

    @contextmanager
    def in_full(self, head: int, cancelled: Callable[[], bool]) -> Iterator[Ran]:
        watch = FullRunWatch(begun=lambda _: None, cancelled=cancelled, admission=admit_all)
        with run_in_full(self._runtime, head, watch) as run:
            tree = run.runtime.history.tree
            yield run.runtime, [tree.get(number) for number in run.steps]


def line_of(records: Sequence[StepRecord]) -> list[StepRecord]:
    """Of these, those that are run."""
    return [step for step in records if step.stays]


@contextmanager
def run_in_full(source: HostedRuntime, head: int, watch: FullRunWatch) -> Iterator[FullRun]:
    """See RunInFull. head: the end of the line that is run. Raises UsageError where there is no such step."""
    if head != START and head not in source.history.tree:
        raise UsageError(f"there is no step {head}")
    hosts = RecordedHosts(())
    fresh = fresh_beside(source, hosts)
    try:
        watch.begun(fresh)
        fresh.start()
        write_all(fresh, written_by(source.history))
        with fresh.rerunning().admitted(watch.admission):
            steps = tuple(_run(source, head, fresh, hosts, watch.cancelled))
        yield FullRun(runtime=fresh, steps=steps)
    finally:
        fresh.close()


def _run(
    source: HostedRuntime,
    head: int,
    fresh: HostedRuntime,
    hosts: RecordedHosts,
    cancelled: Callable[[], bool],
) -> Iterator[int]:
    """Up to a call outside that no record answers."""
    ground = RuntimeReplayTarget(fresh.rerunning(), fresh.resume, None, atomic=False)
    records = line_of(source.history.tree.line(head))
    _check_start(source, records, ground)
    for record in records:
        if cancelled():
            raise UnavailableError("no client waits for it any more")
        fresh.history.keep_file(source.history.files.get(record.content))
        if record.kind == "injection" and (again := source.noted.find(record.content)) is not None:
            fresh.noted.remember(again)
        try:
            done = ground.execute(record, record.code, tentative=True)
        except EffectNotRepeatedError:
            return
        if hosts.refused is not None:
            return
        if done.status == "lost":
            raise UnavailableError(f"its jail was lost in step {record.number}")
        yield done.number


def _check_start(source: HostedRuntime, records: Sequence[StepRecord], ground: RuntimeReplayTarget) -> None:
    """Raises UnavailableError where the first steps, in another runtime or process, have found other values."""
    if not source.began_elsewhere:
        return
    if others := ground.other_start(records, source.noted.recorded_stubs()):
        raise UnavailableError(f"the first steps have found another value of {named(others)}")


class RuntimeValues(Protocol):
    """A runtime as its values are looked at; see Backend."""

    def start(self) -> None: ...

    def fetch(self, name: str, listener: Listener, *, opaque: bool) -> None: ...

    def resume(self) -> None: ...


class SliceRunClient(Protocol):
    """The way to where programs are tried."""

    def put_in(self) -> Mapping[int, frozenset[str]]:
        """See cenote_worker.runtime.scratch_runtime.put_in."""

    def rehearse(self, request: RehearsalRequest) -> Outcome:
        """Blocks. A ValueReply, whose content is the caller's, or an error."""


class LocalSliceRuns:
    """See SliceRunClient. The runtime is in this process."""

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


class RuntimeVerificationSandbox:
    """See VerificationSandbox."""

    def __init__(self, present: RuntimeValues, line: SliceRunClient, classes: dict[str, type]) -> None:
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
