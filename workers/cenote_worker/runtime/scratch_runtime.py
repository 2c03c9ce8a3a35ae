"""Fresh runtimes beside another, for remote clients: to run its history in full, or to try a program.

A scratch runtime has the same policy but no network, writes to none of the host's files, and begins with the values
that clients have injected into the other. The client looks at its end state; then it is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import (
    JailError,
    RehearsalError,
    UnansweredCallError,
    UnavailableError,
    UsageError,
)
from cenote_worker.execution.results import ExecutionResult, RanInFull
from cenote_worker.history.step import START, HostCallRecord, StepRecord
from cenote_worker.process.threads import begin_thread
from cenote_worker.runtime.jail_requests import as_error
from cenote_worker.runtime.recorder import Admission, WaitingListener, admit_all
from cenote_worker.runtime.replay import HostCallReplay, UnrecordedCall, write_all, written_by
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.channels.host_calls import HostCall, HostCallChannel
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.frame_parser import RefusedReply, ValueReply
from cenote_worker.supervisor.requests import Listener, Outcome

MOST: Final = 2
"""At a time: two are compared where a state differs from the first one's."""

KEPT_SECONDS: Final = 600.0
"""Seconds for which a client can look at one: longer than a comparison takes, but not a permanent runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullRunWatch:
    """begun: called with the scratch runtime, before any step. cancelled: called before each.

    admission: of the cells among them.
    """

    begun: Callable[[HostedRuntime], None]
    cancelled: Callable[[], bool]
    admission: Admission


@dataclass(frozen=True, slots=True, kw_only=True)
class FullRun:
    """steps: numbered as in that runtime, up to one that would have made a host call that is not recorded."""

    runtime: HostedRuntime
    steps: tuple[int, ...]


RunInFull = Callable[[FullRunWatch], AbstractContextManager[FullRun]]
"""Entering it blocks until the steps have run; inside, their end state is there. Raises CenoteError."""


def not_in_full(runtime: HostedRuntime) -> str:
    """Why its history can never be run in full, whatever the steps are, in one sentence; empty if it can."""
    if runtime.earlier is not None:
        return "the history begins with a state that was restored, not with the start of a runtime"
    if why := runtime.begins_otherwise:
        return f"the start of the history cannot be made again: {why}"
    if any(mount.writable for mount in runtime.policy.mounts):
        return "steps may write to mounted folders, which are not written to twice"
    if runtime.network_log:
        return "steps have reached for the network, which is not asked twice"
    return ""


class _Run:
    def __init__(self, client: str, key: str) -> None:
        self.client = client
        self.key = key
        self.over = threading.Event()
        """Set when no client wants it any more."""
        self.begun: HostedRuntime | None = None
        self.ran: FullRun | None = None

    def begin(self, runtime: HostedRuntime) -> None:
        self.begun = runtime

    def end(self) -> None:
        """Never blocks: its thread closes the runtime."""
        self.over.set()
        if self.begun is not None and (supervisor := self.begun.supervisor) is not None:
            supervisor.end(JailExit(reason="closed"))


class FullRuns:
    """Of one runtime, by numbers that its client gives them: each on a thread of its own. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[int, _Run] = {}

    def begin(
        self, work: RunInFull, number: int, client: str, key: str, listener: Listener, admission: Admission
    ) -> None:
        """The listener gets a RanInFull, or the error to raise. key: see `cancel`.

        Raises UnavailableError while another client has one.
        """
        run = _Run(client, key)
        with self._lock:
            self._runs = {at: each for at, each in self._runs.items() if not each.over.is_set()}
            if any(each.client != client for each in self._runs.values()):
                raise UnavailableError("another client runs this history in full; try again behind it")
            former, self._runs[number] = self._runs.get(number), run
        if former is not None:
            former.end()
        watch = FullRunWatch(begun=run.begin, cancelled=run.over.is_set, admission=admission)
        carried_out = partial(_carry_out, run, partial(work, watch), listener)
        try:
            begin_thread("cenote-full-run", carried_out)
        except UnavailableError:
            run.over.set()
            raise

    def of(self, client: str, number: int) -> HostedRuntime:
        """The runtime of this client's run. Raises UnavailableError when there is no such run, or not any more."""
        with self._lock:
            run = self._runs.get(number)
        if run is None or run.client != client or run.ran is None or run.over.is_set():
            raise UnavailableError("there is no full run of that number, or not any more")
        return run.ran.runtime

    def end(self, client: str | None = None, number: int = 0) -> None:
        """Ends the runs of this client, or only the one of that number. None: of any client. Never blocks."""
        self._end(lambda at, run: client in (None, run.client) and number in (0, at))

    def cancel(self, key: str) -> None:
        """Ends the run that was begun with this key."""
        self._end(lambda _, run: run.key == key)

    def _end(self, wanted: Callable[[int, _Run], bool]) -> None:
        with self._lock:
            over = [number for number, run in self._runs.items() if wanted(number, run)]
            runs = [self._runs.pop(number) for number in over]
        for run in runs:
            run.end()


def _carry_out(run: _Run, work: Callable[[], AbstractContextManager[FullRun]], listener: Listener) -> None:
    try:
        with work() as run.ran:
            listener.done(RanInFull(steps=run.ran.steps))
            run.over.wait(KEPT_SECONDS)
            run.over.set()
    except Exception as error:  # noqa: BLE001  (the listener gets any error)
        run.over.set()
        listener.done(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRequest:
    """Run this in a fresh runtime, and return the value of `name` at the end.

    steps: the ones whose code it is: their injected values and files are there from the start, and their host calls
    get recorded answers.
    """

    source: str
    steps: tuple[int, ...]
    name: str
    seconds: float


class RecordedHosts:
    """A HostHandler that answers from a record, each answer once, and calls nothing."""

    def __init__(self, calls: Iterable[HostCallRecord]) -> None:
        self._replay = HostCallReplay(calls, tentative=True)
        self._lock = threading.Lock()

    @property
    def refused(self) -> UnrecordedCall | None:
        """The first call without a recorded answer, which failed."""
        return self._replay.stopped

    def call(self, line: HostCallChannel, call: HostCall) -> None:
        with self._lock:
            answer = self._replay.answer(call, "external")  # so that no unrecorded call is allowed
        call.close()
        assert answer is not None
        line.answer(call.id, answer)

    def cancel(self, _call_id: int) -> None:
        """Does nothing: every call is answered at once."""

    def release(self, _reference: int) -> None:
        """Does nothing: there are no references."""

    def ended(self) -> None:
        """Does nothing: nothing is under way."""


def put_in(source: HostedRuntime) -> Mapping[int, frozenset[str]]:
    """Names of injected values that are still stored, by the step that injected them. START: at first."""
    found: dict[int, frozenset[str]] = {}
    missing = source.noted.start.missing
    if first := {each for each in source.history.begun if each not in missing and "/" not in each}:
        found[START] = frozenset(first)
    for record in _injections(source, source.history.injections):
        found[record.number] = frozenset(record.names)
    for injection in source.noted.all():  # its record may be lost, with the process that made it
        if injection.step != START and not injection.seat.private:
            found[injection.step] = found.get(injection.step, frozenset()) | frozenset(injection.names)
    return found


def _injections(source: HostedRuntime, steps: Iterable[int]) -> list[StepRecord]:
    """The injections into the common namespace, among these steps, that can be made again."""
    records = [source.history.tree.get(number) for number in steps if number in source.history.tree]
    return [
        each
        for each in records
        if each.kind == "injection" and each.repeatable and source.noted.keeps(each.content)
    ]


def fresh_beside(source: HostedRuntime, hosts: RecordedHosts, steps: Collection[int] = ()) -> HostedRuntime:
    """A runtime of the same policy, without network or writes to the host's files. The caller closes it.

    It begins with the values that clients have injected into the source at first, and at these steps.
    """
    policy = source.policy
    mounts = [replace(mount, writable=False) for mount in policy.mounts]
    fresh = HostedRuntime(
        replace(policy, network="none", mounts=mounts, snapshots="none", runtime_timeout=None),
        hosts,
        source.start_beside,
        source.name,
    )
    again = [source.noted.find(record.content) for record in _injections(source, steps)]
    for injection in (*source.noted.first(), *again):
        if injection is not None and injection.seat.private:
            injection.close()
        elif injection is not None:
            fresh.declare(injection)
    return fresh


class Rehearsal:
    """One try. `value` once, then `close`; `end` makes `value` raise soon, at any time, from any thread.

    It has the policy of its source, but no network, and writes to none of the host's files: the tried code had its
    effects already.
    """

    def __init__(self, source: HostedRuntime, request: RehearsalRequest) -> None:
        """Raises UsageError for steps that the source never had."""
        self._request = request
        self._over = False
        self._hosts = RecordedHosts(
            call for record in _records(source, request.steps) for call in record.host_calls
        )
        self._fresh = fresh_beside(source, self._hosts, request.steps)
        self._files = written_by(source.history, _records(source, request.steps))

    def value(self, admission: Admission = admit_all) -> ValueReply:
        """The value, in the safe encoding; the caller closes it. admission: of the cell that runs the program.

        Raises RehearsalError, UnansweredCallError; what `HostedRuntime.start` raises.
        """
        try:
            self._fresh.start()
            if self._over:
                raise UnavailableError("no client waits for what the program gives any more")
            write_all(self._fresh, self._files)
            self._run(admission)
            if self._hosts.refused is not None:
                raise UnansweredCallError(self._hosts.refused.target)
            return self._fetched()
        except RehearsalError:
            if self._hosts.refused is not None:  # that is the cause
                raise UnansweredCallError(self._hosts.refused.target) from None
            raise

    def end(self) -> None:
        """Never blocks, unlike `close`, which waits while the jail starts."""
        self._over = True
        if (supervisor := self._fresh.supervisor) is not None:
            supervisor.end(JailExit(reason="closed"))

    def close(self) -> None:
        self._fresh.close()

    def _run(self, admission: Admission) -> None:
        request, waiting = self._request, WaitingListener()
        with admission(request.source) as entry:
            self._fresh.execute(request.source, request.seconds, waiting, entry=entry)
        found = _answer(waiting.outcomes.get())
        if not isinstance(found, ExecutionResult):
            raise JailError("the runtime gave no result for a cell")
        if not found.success:
            error = found.error
            raise RehearsalError(
                f"its program ends with {error.type}: {error.message}" if error else "its program fails"
            )

    def _fetched(self) -> ValueReply:
        name, waiting = self._request.name, WaitingListener()
        self._fresh.fetch(name, waiting, opaque=False)
        found = _answer(waiting.outcomes.get())
        if isinstance(found, RefusedReply) and found.kind == jail_pb2.Refusal.UNKNOWN_NAME:
            raise RehearsalError(f"its program makes no `{name}`")
        if isinstance(found, RefusedReply):
            raise as_error(found, name)
        if not isinstance(found, ValueReply):
            raise JailError(f"the runtime gave no value for {name!r}")
        return found


class Rehearsals:
    """Of one runtime, for remote clients: one at a time, on a thread of its own. Thread-safe."""

    def __init__(self, source: HostedRuntime) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._running: tuple[str, Rehearsal] | None = None

    def begin(self, request: RehearsalRequest, key: str, listener: Listener, admission: Admission) -> None:
        """The listener gets a ValueReply, or the error to raise. An earlier one with this key is ended.

        Raises UsageError, and UnavailableError while another runs.
        """
        with self._lock:
            former = self._running
            if former is not None and former[0] != key:
                raise UnavailableError("another slice of this runtime is being verified; try again behind it")
            rehearsal = Rehearsal(self._source, request)
            self._running = key, rehearsal
        if former is not None:
            former[1].end()
        work = partial(self._carry_out, rehearsal, listener, admission)
        try:
            begin_thread("cenote-rehearsal", work)
        except UnavailableError:
            self._over(rehearsal)
            raise

    def end(self, key: str | None = None) -> None:
        """Ends the rehearsal of this key, which no client waits for any more; None: of any key."""
        with self._lock:
            running = self._running
            if running is None or key not in (None, running[0]):
                return
            self._running = None
        running[1].end()

    def _carry_out(self, rehearsal: Rehearsal, listener: Listener, admission: Admission) -> None:
        outcome: Outcome
        try:
            outcome = rehearsal.value(admission)
        except Exception as error:  # noqa: BLE001  (the listener gets any error)
            outcome = error
        self._over(rehearsal)
        listener.done(outcome)

    def _over(self, rehearsal: Rehearsal) -> None:
        rehearsal.close()
        with self._lock:
            if self._running is not None and self._running[1] is rehearsal:
                self._running = None


def _records(source: HostedRuntime, steps: Iterable[int]) -> list[StepRecord]:
    tree = source.history.tree
    for number in steps:
        if number == START or number not in tree:
            raise UsageError(f"there is no step {number}")
    return [tree.get(number) for number in steps]


def _answer(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
