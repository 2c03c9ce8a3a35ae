"""Branches of a runtime: its state, copied once in memory, and fresh runtimes that begin with it.

A branch is a jail of its own, with limits, files and a history of its own, and ends on its own. The state is an
image of the process where one can be made. Otherwise it is copied by value: each branch rebuilds what a pickle cannot
hold, by running the steps that made it; what cannot be rebuilt is reported before anything starts.

To copy a former state the runtime is rolled back to it for a moment. That is neither a step of the history nor
stored: to all other callers the runtime has not moved. A process that takes over meanwhile goes forward first, as it
does after an unfinished patch.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2
from cenote_proto.v1.checkpoint_pb2 import RebuildGiven, RestoreEnd
from cenote_security.errors import NotKeptError, UnavailableError, UsageError
from cenote_worker.checkpoints.errors import CheckpointRefusedError, IncompleteForkError
from cenote_worker.checkpoints.fidelity import missing_of
from cenote_worker.checkpoints.state import index_for
from cenote_worker.checkpoints.state_receiver import ReceivedImage, ReceivedState
from cenote_worker.execution.results import Carried, Rollback
from cenote_worker.history.history import History
from cenote_worker.process.metrics import FORK_SECONDS, FORKS
from cenote_worker.process.patient_wait import PatientWait
from cenote_worker.record.lineage import Lineage
from cenote_worker.runtime.handover.handover_log import NO_HANDOVER_LOG, HandoverLog
from cenote_worker.runtime.jails import StartJail
from cenote_worker.runtime.recorder import WaitingListener
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.snapshots import TIMEOUT, check_target
from cenote_worker.runtime.state.images import image_of
from cenote_worker.runtime.state.rebuild import StateRebuild, plan_of
from cenote_worker.runtime.state.state_source import FreshJailNeededError, NoStateSource, arrival_of
from cenote_worker.runtime.state.transfer import handed_over, put_image, put_whole
from cenote_worker.supervisor.channels.host_calls import HostHandler
from cenote_worker.supervisor.frame_parser import KeptReply
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import JailRequest, Outcome
from cenote_worker.supervisor.supervisor import Supervisor

QUIET_SECONDS: Final = 2.0
"""Seconds for a runtime that has answered all requests to have nothing under way."""

BUSY: Final = "a call of this runtime is under way; try again when it has been answered"

LOOK_EVERY: Final = 0.005

_TRIES: Final = 3
"""A rollback is not carried out when the worker has just died, and is requested again then."""


@contextmanager
def temporary_rollback(runtime: HostedRuntime, to: int | str) -> Iterator[None]:
    """Inside, the live state is that after step `to`, or that of a label. No other caller's request is sent
    meanwhile.

    Raises NotKeptError and UnavailableError with nothing done: when there is no such state, when the present one
    cannot be stored, while a call is under way. JailLostError when the jail ends meanwhile.
    """
    check_target(to)
    with _alone(runtime) as supervisor, runtime.patches.away(f"visit {secrets.token_hex(8)}"):
        if isinstance(to, int) and runtime.rerunning().is_between(to):
            raise NotKeptError(to)
        present = _kept(runtime)
        let_go = supervisor.hold((present, to))
        try:
            visited = _gone(supervisor, to)
            try:
                yield
            finally:
                _back(runtime, supervisor, present, visited)
        finally:
            let_go()


@contextmanager
def _alone(runtime: HostedRuntime) -> Iterator[Supervisor]:
    wait = PatientWait(QUIET_SECONDS)
    while True:
        with runtime.turn:
            supervisor = runtime.started()
            if not supervisor.busy:
                yield supervisor
                return
        if not wait.piece():
            raise UnavailableError(BUSY)
        time.sleep(LOOK_EVERY)


def _kept(runtime: HostedRuntime) -> int:
    """The number of the present state's snapshot."""
    kept = WaitingListener()
    runtime.rerunning().keep(kept, label="")
    outcome = kept.outcomes.get()
    if isinstance(outcome, KeptReply):
        return outcome.step
    raise _error(outcome)


def _gone(supervisor: Supervisor, to: int | str) -> int:
    outcome = _moved(supervisor, to)
    if isinstance(outcome, Rollback):
        return outcome.step
    raise _error(outcome)


def _back(runtime: HostedRuntime, supervisor: Supervisor, present: int, visited: int) -> None:
    outcome: Outcome = UnavailableError(BUSY)
    for _ in range(_TRIES):
        outcome = _moved(supervisor, present)
        if isinstance(outcome, Rollback):
            return
    # All clients see the state that was visited from now on; its jail says which that is.
    if supervisor.death is None and visited in runtime.history.tree:
        runtime.history.moved(visited, "the state before a fork could not be had again")
    raise _error(outcome)


def _moved(supervisor: Supervisor, to: int | str) -> Outcome:
    label, step = (to, 0) if isinstance(to, str) else ("", to)
    gone = WaitingListener()
    supervisor.submit(
        JailRequest(RequestKind.ROLLBACK, jail_pb2.Request(), gone, timeout=TIMEOUT, step=step, label=label)
    )
    return gone.outcomes.get()


def _error(outcome: Outcome) -> Exception:
    return (
        outcome
        if isinstance(outcome, Exception)
        else UnavailableError("the jail has answered something else")
    )


MAX_BRANCHES: Final = 256
"""Of one fork: each is a jail of its own, and a slip such as 10**6 would bring the machine down."""

_LEAST_PATIENCE: Final = 0.1
"""Seconds for a copy by value where the image has taken all the time that there was."""

_AT_A_TIME: Final = 8
"""Branches that are started at once; more would wait for the zygote, which makes one jail after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkOrder:
    """The options of a fork. at: a snapshot, by step or label; None for the present state.

    deterministic: branches draw the random numbers that the source would draw next. partial: objects that can neither
    be copied nor rebuilt are left out; otherwise nothing starts. patience: seconds for all of it; None to wait for
    running cells.
    """

    at: int | str | None = None
    deterministic: bool = False
    partial: bool = False
    patience: float | None = None

    @property
    def visits(self) -> bool:
        """Whether the source is at another state while it is copied, see `temporary_rollback`."""
        return self.at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """Where a branch was forked. history: of the runtime that it comes from. step: the last one that both have."""

    history: str
    step: int


def check_count(count: int) -> None:
    """Checks the number of one fork's branches. Raises UsageError."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UsageError(f"a fork makes at least one runtime, not {count!r}")
    if count > MAX_BRANCHES:
        raise UsageError(
            f"a fork makes at most {MAX_BRANCHES} runtimes at once, not {count}; fork again for more"
        )


def branch_names(name: str | None, count: int) -> list[str]:
    """The names of this many branches, from the requested name; none where there is none."""
    if not name or count == 1:
        return [name] if name else []
    return [f"{name}-{number}" for number in range(1, count + 1)]


@contextmanager
def copied(source: HostedRuntime, order: ForkOrder) -> Iterator[StateCopy]:
    """The requested state, for the branches that are started inside.

    Raises IncompleteForkError when something would be missing, CheckpointRefusedError, what `temporary_rollback` and
    `HostedRuntime.start` raise, OSError when there is no memory.
    """
    began = time.monotonic()
    copy = StateCopy(source, order)
    try:
        if copy.missing and not order.partial:
            raise IncompleteForkError(copy.missing)
        yield copy
        source.recorder.counts.add(FORKS, by=copy.branches)
        source.recorder.counts.observe(FORK_SECONDS, time.monotonic() - began)
    finally:
        copy.close()


def carried_out(works: Sequence[Callable[[], None]]) -> None:
    """Runs all of them, some at a time: each mostly waits for its jail. Raises the first error."""
    if len(works) == 1:
        works[0]()
        return
    with ThreadPoolExecutor(min(len(works), _AT_A_TIME), thread_name_prefix="cenote-fork") as pool:
        for begun in [pool.submit(work) for work in works]:
            begun.result()


_Taken = tuple[ReceivedState | ReceivedImage, int, str]
"""A copy of a state, the step whose end it is, and why it is not an image of the process, if so."""


def _copy_of(source: HostedRuntime, patience: float | None, *, partial: bool, exact: bool) -> _Taken:
    """As an image, where one can be made and lacks nothing; else by value, where steps may rebuild what it lacks.

    partial: it may lack something all the same. exact: False if it is to be by value.
    """
    supervisor = source.started()
    until = None if patience is None else time.monotonic() + patience
    reason = ""
    if exact:
        try:
            image, head = image_of(source, supervisor, patience, partial=partial)
        except CheckpointRefusedError as refused:
            reason = refused.reason
        else:
            return image, head, ""
    left = None if until is None else max(until - time.monotonic(), _LEAST_PATIENCE)
    return *handed_over(source, supervisor, left), reason


class StateCopy:
    """The state of a runtime as it was when this was made. Close it; branches that have begun do not need it."""

    def __init__(self, source: HostedRuntime, order: ForkOrder) -> None:
        """Copies the state when the cells that were sent before are over. See `copied` for errors."""
        self._source = source
        self._order = order
        self._until = None if order.patience is None else time.monotonic() + order.patience
        self._lock = threading.Lock()
        self.branches = 0
        """Number of branches that were begun with it."""
        self._images: list[ReceivedImage] = []
        """Images that a jail could not become: another branch may be about to find the same."""
        self._held, self._head, self._reason = self._taken(exact=True)
        self._plan = plan_of(source, self._held.state, self._head, beside=True)

    def _taken(self, *, exact: bool) -> _Taken:
        source, order = self._source, self._order
        if order.at is None:
            return _copy_of(source, order.patience, partial=order.partial, exact=exact)
        with temporary_rollback(source, order.at):
            return _copy_of(source, order.patience, partial=order.partial, exact=exact)

    @property
    def point(self) -> ForkPoint:
        """Where its branches leave the source: after the step whose end the state is.

        A state that no step has led to counts as that of the source's head.
        """
        history = self._source.history
        step = self._head if self._head in history.tree else history.tree.head
        return ForkPoint(history=history.id, step=step)

    @property
    def missing(self) -> tuple[str, ...]:
        """The objects that branches will not have, each with the reason."""
        return missing_of(self._held.state, self._plan.rebuild)

    def runtime(
        self,
        hosts: HostHandler,
        *,
        name: str = "",
        start: StartJail | None = None,
        legacy: HandoverLog = NO_HANDOVER_LOG,
        history: History | None = None,
    ) -> HostedRuntime:
        """A runtime that begins with this state once it is started, which must happen before the copy is closed.

        hosts: carries out the host calls of its jails. name: by default the source's. The rest: see HostedRuntime;
        the history is an empty one.
        """
        history = History() if history is None else history
        history.begin_as(self._source.history)
        policy = self._source.policy
        counts = self._source.recorder.counts
        tenant = self._source.tenant
        branch = HostedRuntime(
            policy, hosts, start, name or self._source.name, legacy, history, counts, tenant
        )
        with self._lock:
            self.branches += 1
        for injection in self._source.noted.all():
            if not injection.seat.private:
                branch.declare(replace(injection, values=injection.values.duplicate(), number=0))
        for former in self._source.noted.former():
            branch.noted.remember(former)
        branch.count_on(max(self.point.step, history.tree.last), None)
        branch.earlier = self._source.earlier
        branch.refill = _Beginning(self, branch)
        return branch

    def fill(self, branch: HostedRuntime, supervisor: Supervisor) -> None:
        """Puts the state into a branch's jail, which has the injected values.

        Raises IncompleteForkError, CheckpointRefusedError, UnavailableError. FreshJailNeededError: see StateSource;
        another jail gets the state by value.
        """
        held = self._held
        if isinstance(held, ReceivedImage):
            try:
                anew = not self._order.deterministic
                put_image(supervisor, held, draw_anew=anew, patience=self._patience())
            except CheckpointRefusedError as refused:
                held = self._by_value(refused.reason)
            except UnavailableError as error:
                self._by_value(str(error))
                raise FreshJailNeededError(str(error)) from error
            else:
                branch.carried = Carried(how="exact", missing=missing_of(held.state))
                return
        line = self._plan.line
        made, lost = self._made_again(branch, supervisor, held, line) if line is not None else ((), ())
        differing = self._put(supervisor, held, self._end(held, made))
        missing = (*self.missing, *lost)
        branch.carried = Carried(how="rebuilt", reason=self._reason, missing=missing, differing=differing)

    def _by_value(self, reason: str) -> ReceivedState:
        """Copies the state by value, if the source still has it, since a jail could not become the image."""
        with self._lock:
            if isinstance(self._held, ReceivedImage):
                held, head, _ = self._taken(exact=False)
                assert isinstance(held, ReceivedState)
                if head != self._head:
                    held.close()
                    raise CheckpointRefusedError(f"{reason}; the runtime has gone on since: fork it again")
                self._images.append(self._held)
                self._held, self._reason = held, reason
                self._plan = plan_of(self._source, held.state, head, beside=True)
                if self.missing and not self._order.partial:
                    raise IncompleteForkError(self.missing)
            return self._held

    def _made_again(
        self, branch: HostedRuntime, supervisor: Supervisor, held: ReceivedState, line: Lineage
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of rebuilt objects that could not be copied, with those that share objects with them; and what
        could not be rebuilt, with the reason."""
        state, rebuild = held.state, self._plan.rebuild
        groups, files = rebuild.given_groups(state.groups), rebuild.given_files(state.files)
        self._put(supervisor, held, RebuildGiven(groups=groups, files=files))
        rebuilding = StateRebuild(
            branch, supervisor, rebuild, state.message.hosts, self._patience, self._plan.injected
        )
        reason = rebuilding.carry_out(line)
        if not reason:
            return rebuild.names, ()
        lost = (f"{', '.join(rebuild.names)}: {reason}",)
        if not self._order.partial:
            raise IncompleteForkError(lost)
        return (), lost

    def _put(
        self, supervisor: Supervisor, held: ReceivedState, what: RestoreEnd | RebuildGiven
    ) -> tuple[str, ...]:
        partial = self._order.partial
        return put_whole(supervisor, held, what, partial=partial, patience=self._patience())

    def _end(self, held: ReceivedState, made: Collection[str]) -> RestoreEnd:
        message = held.state.message
        there = {name for group in held.state.groups for name in group.names}
        there |= {*message.hosts, *made}
        return make(
            RestoreEnd,
            names=[name for name in message.names if name in there],
            modules=message.modules,
            step=self.point.step,
            draw_anew=not self._order.deterministic,
            index=index_for(message, there, made),
        )

    def _patience(self) -> float:
        if self._until is None:
            return self._source.policy.call_seconds
        return max(self._until - time.monotonic(), 1.0)

    def close(self) -> None:
        for held in (self._held, *self._images):
            held.close()


class _Beginning(NoStateSource):
    """See StateSource. A branch's first jail begins with the copy; a later one with the injected values only."""

    def __init__(self, copy: StateCopy, branch: HostedRuntime) -> None:
        self.step = copy.point.step
        self._branch = branch
        self._copy: StateCopy | None = copy

    def fill(self, supervisor: Supervisor, inject: Callable[[], None]) -> None:
        inject()
        copy, self._copy = self._copy, None
        if copy is None:
            self.step, self._branch.carried = 0, None
            return
        try:
            copy.fill(self._branch, supervisor)
        except FreshJailNeededError:
            self._copy = copy
            raise

    @property
    def arrival(self) -> str:  # type: ignore[override]
        return arrival_of(self._branch.carried)

    def forget(self) -> None:
        self._copy, self._branch.earlier = None, None

    def close(self) -> None:
        self._copy = None
