"""Fresh runtimes with what clients have put into another: to try a program, and to do nothing else."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import (
    JailError,
    RehearsalError,
    UnansweredCallError,
    UnavailableError,
    UsageError,
)
from cenote_worker.begun_threads import begin_thread
from cenote_worker.history.step import START, HostCallRecord, StepRecord
from cenote_worker.hosted.listeners import Admission, Delivery, admit_all
from cenote_worker.hosted.refusals import as_error
from cenote_worker.hosted.replays import Replay, Unrepeated
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.written_files import write_all, written_by
from cenote_worker.results import ExecutionResult
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.edge import RefusedReply, ValueReply
from cenote_worker.supervisor.host_line import HostCall, HostLine
from cenote_worker.supervisor.requests import Listener, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRequest:
    """Run this in a fresh runtime, and give what `name` is there then.

    steps: whose code it is: values and files that they put in are there from the start, and their host calls get
    recorded answers.
    """

    source: str
    steps: tuple[int, ...]
    name: str
    seconds: float


class RecordedHosts:
    """A HostHandler that answers from a record, each answer once, and calls nothing."""

    def __init__(self, calls: Iterable[HostCallRecord]) -> None:
        self._replay = Replay(calls, tentative=True)
        self._lock = threading.Lock()

    @property
    def refused(self) -> Unrepeated | None:
        """The first call that no record answers, which was told that it failed."""
        return self._replay.stopped

    def call(self, line: HostLine, call: HostCall) -> None:
        with self._lock:
            answer = self._replay.answer(call, "external")  # so that nothing is allowed that is not recorded
        call.close()
        assert answer is not None
        line.answer(call.id, answer)

    def cancel(self, _call_id: int) -> None:
        """Every call is answered at once."""

    def release(self, _reference: int) -> None:
        """There are no references."""

    def ended(self) -> None:
        """Nothing is under way."""


def put_in(source: HostedRuntime) -> Mapping[int, frozenset[str]]:
    """Names of what clients have put in and is still kept, by the step that did it. START: at first."""
    found: dict[int, frozenset[str]] = {}
    missing = source.noted.start.missing
    if first := {each for each in source.history.begun if each not in missing and "/" not in each}:
        found[START] = frozenset(first)
    for record in _injections(source, source.history.injections):
        found[record.number] = frozenset(record.names)
    for injection in source.noted.all():  # whose record may be lost, with the process that made it
        if injection.step != START and not injection.seat.private:
            found[injection.step] = found.get(injection.step, frozenset()) | frozenset(injection.names)
    return found


def _injections(source: HostedRuntime, steps: Iterable[int]) -> list[StepRecord]:
    """Of these steps, those that have put something in for everybody which can be put in again."""
    records = [source.history.tree.get(number) for number in steps if number in source.history.tree]
    return [
        each
        for each in records
        if each.kind == "injection" and each.repeatable and source.noted.keeps(each.content)
    ]


def fresh_beside(source: HostedRuntime, hosts: RecordedHosts, steps: Collection[int] = ()) -> HostedRuntime:
    """One of the same policy, but it reaches no network and writes to nothing of the host's. Its maker closes it.

    It begins with what clients have put into the source at first, and at these steps.
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
    """One try. `value` once, then `close`; `end` lets `value` raise soon, at any time, from any thread.

    It has the policy of its source, but reaches no network and writes to nothing of the host's: what is tried had its
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
                raise UnavailableError("nobody waits for what the program gives any more")
            write_all(self._fresh, self._files)
            self._run(admission)
            if self._hosts.refused is not None:
                raise UnansweredCallError(self._hosts.refused.target)
            return self._fetched()
        except RehearsalError:
            if self._hosts.refused is not None:  # which is why
                raise UnansweredCallError(self._hosts.refused.target) from None
            raise

    def end(self) -> None:
        """Never blocks, as `close` does while the jail starts."""
        self._over = True
        if (supervisor := self._fresh.supervisor) is not None:
            supervisor.end(Death(reason="closed"))

    def close(self) -> None:
        self._fresh.close()

    def _run(self, admission: Admission) -> None:
        request, waiting = self._request, Delivery()
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
        name, waiting = self._request.name, Delivery()
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
    """Of one runtime, for clients that are elsewhere: one at a time, on a thread of its own. Thread-safe."""

    def __init__(self, source: HostedRuntime) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._running: tuple[str, Rehearsal] | None = None

    def begin(self, request: RehearsalRequest, key: str, listener: Listener, admission: Admission) -> None:
        """The listener gets a ValueReply, or the error to raise. One that came with this key before is ended.

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
        """Nobody waits for the one of this key any more; None: for any."""
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
        except Exception as error:  # noqa: BLE001  (whatever it is: whoever waits is told)
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
