"""Full runs of histories, in a fresh runtime beside the one that has them: where that is, and the way to there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from cenote.harness.apply_ground import EffectNotRepeatedError
from cenote.harness.plan_contents import found_at_first
from cenote.harness.spoken import named
from cenote.runtime.ground import RuntimeGround
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.history.step import START, StepRecord
from cenote_worker.hosted.files import FileAsk
from cenote_worker.hosted.full_runs import FullRun, FullRunWatch, not_in_full
from cenote_worker.hosted.listeners import admit_all
from cenote_worker.hosted.rehearsal import RecordedHosts, fresh_beside
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.written_files import write_all, written_by
from cenote_worker.supervisor.requests import Listener
from cenote_worker.trace import key_of


class LookedAt(Protocol):
    """A runtime as its variables and files are compared; see Backend."""

    def describe(self, listener: Listener) -> None: ...

    def fetch(self, name: str, listener: Listener, *, opaque: bool) -> None: ...

    def file(self, ask: FileAsk, listener: Listener) -> None: ...

    def resume(self) -> None: ...


Ran = tuple[LookedAt, Sequence[StepRecord]]
"""A runtime in which a history has run, and the steps there, up to one that would have called outside what was not
recorded."""


class FullRunLine(Protocol):
    """The way to where histories are run in full."""

    def not_in_full(self) -> str:
        """See cenote_worker.hosted.full_runs."""

    def in_full(self, head: int, cancelled: Callable[[], bool]) -> AbstractContextManager[Ran]:
        """What has come of the line to this step. cancelled: is asked before each. Raises CenoteError."""


class FullRunsHere:
    """See FullRunLine. The runtime is in this process."""

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
    ground = RuntimeGround(fresh.rerunning(), fresh.resume, None, atomic=False)
    records = line_of(source.history.tree.line(head))
    _check_start(source, records, ground)
    for record in records:
        if cancelled():
            raise UnavailableError("nobody waits for it any more")
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


def _check_start(source: HostedRuntime, records: Sequence[StepRecord], ground: RuntimeGround) -> None:
    """Raises UnavailableError where the first steps, in another runtime or process, have found other values."""
    found = found_at_first(records) if source.began_elsewhere else {}
    now = ground.versions(found)
    others = sorted(key_of(each) for each, version in found.items() if now.get(each, version) != version)
    if others:
        raise UnavailableError(f"the first steps have found another value of {named(others)}")
