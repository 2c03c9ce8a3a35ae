"""Branches of a runtime: its state, copied once in memory, and fresh runtimes that begin with it.

A branch is a jail of its own, with limits, files and a history of its own, and ends on its own. The state is an image
of the process where that can be had. Else it goes by value: what a pickle cannot carry each branch makes again, by
running the steps that made it; what cannot be made again is named before anything starts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1.checkpoint_pb2 import RebuildGiven, RestoreEnd
from cenote_security.errors import UsageError
from cenote_worker.checkpoints.errors import CheckpointRefusedError, IncompleteForkError
from cenote_worker.checkpoints.fidelity import missing_of
from cenote_worker.checkpoints.handover import HandedOver, Imaged
from cenote_worker.checkpoints.state import index_for
from cenote_worker.counts import FORK_SECONDS, FORKS
from cenote_worker.history.history import History
from cenote_worker.hosted.fresh_jails import StartJail
from cenote_worker.hosted.legacy import NO_LEGACY, Legacy
from cenote_worker.hosted.rebuild_plans import plan_of
from cenote_worker.hosted.rebuilding import Rebuilding
from cenote_worker.hosted.refill import NoRefill
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.state_transfer import handed_over, imaged, put_image, put_whole
from cenote_worker.hosted.visiting import visiting
from cenote_worker.rebuilding.line import Line
from cenote_worker.results import Carried
from cenote_worker.supervisor.host_line import HostHandler
from cenote_worker.supervisor.supervisor import Supervisor

MAX_BRANCHES: Final = 256
"""Of one fork: each is a jail of its own, and a slip such as 10**6 would bring the machine down before it is told."""

_LEAST_PATIENCE: Final = 0.1
"""Seconds for a copy by value where the image has taken all that there was."""

_AT_A_TIME: Final = 8
"""Branches that are started at once; more would wait for the zygote, which makes one jail after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkOrder:
    """What branches begin with. at: a kept state, by step or label; None for the present one.

    deterministic: they draw the random numbers that the source goes on to draw. partial: what can neither be copied
    nor made again is left out; else nothing starts. patience: seconds for all of it; None to wait for cells that run.
    """

    at: int | str | None = None
    deterministic: bool = False
    partial: bool = False
    patience: float | None = None

    @property
    def visits(self) -> bool:
        """Whether the source is elsewhere while it is copied, see `visiting`."""
        return self.at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """Where a branch was forked. history: of the runtime that it comes from. step: the last one that both have."""

    history: str
    step: int


def check_count(count: int) -> None:
    """Of one fork's branches. Raises UsageError."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UsageError(f"a fork makes at least one runtime, not {count!r}")
    if count > MAX_BRANCHES:
        raise UsageError(
            f"a fork makes at most {MAX_BRANCHES} runtimes at once, not {count}; fork again for more"
        )


def branch_names(name: str | None, count: int) -> list[str]:
    """What so many branches are called that are to be called that; none where they are not."""
    if not name or count == 1:
        return [name] if name else []
    return [f"{name}-{number}" for number in range(1, count + 1)]


@contextmanager
def copied(source: HostedRuntime, order: ForkOrder) -> Iterator[StateCopy]:
    """The state that is asked for, for as many branches as are started inside.

    Raises IncompleteForkError when something would be missing, CheckpointRefusedError, what `visiting` and
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
    """All of them, some at a time: each waits for its jail most of the time. Raises what the first to fail raises."""
    if len(works) == 1:
        works[0]()
        return
    with ThreadPoolExecutor(min(len(works), _AT_A_TIME), thread_name_prefix="cenote-fork") as pool:
        for begun in [pool.submit(work) for work in works]:
            begun.result()


_Taken = tuple[HandedOver | Imaged, int, str]
"""A copy of a state, the step whose end it is, and why it is no image of the process, if so."""


def _copy_of(source: HostedRuntime, patience: float | None, *, partial: bool, exact: bool) -> _Taken:
    """As an image, where that can be had and lacks nothing; else by value, where steps may make again what it lacks.

    partial: it may lack something all the same. exact: False if it is to be by value.
    """
    supervisor = source.started()
    until = None if patience is None else time.monotonic() + patience
    reason = "its jail cannot take an image" if exact else ""
    if exact and supervisor.isolation == "strict":
        try:
            image, head = imaged(source, supervisor, patience, partial=partial)
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
        """That were begun with it."""
        self._images: list[Imaged] = []
        """That were not taken in: another branch may be about to find the same."""
        self._held, self._head, self._reason = self._taken(exact=True)
        self._plan = plan_of(source, self._held.state, self._head, beside=True)

    def _taken(self, *, exact: bool) -> _Taken:
        source, order = self._source, self._order
        if order.at is None:
            return _copy_of(source, order.patience, partial=order.partial, exact=exact)
        with visiting(source, order.at):
            return _copy_of(source, order.patience, partial=order.partial, exact=exact)

    @property
    def point(self) -> ForkPoint:
        """Where its branches leave the source: behind the step whose end the state is.

        One that no step has led to is believed to be where the source is.
        """
        history = self._source.history
        step = self._head if self._head in history.tree else history.tree.head
        return ForkPoint(history=history.id, step=step)

    @property
    def missing(self) -> tuple[str, ...]:
        """Each thing that branches will not have, with the reason."""
        return missing_of(self._held.state, self._plan.rebuild)

    def runtime(
        self,
        hosts: HostHandler,
        *,
        name: str = "",
        start: StartJail | None = None,
        legacy: Legacy = NO_LEGACY,
        history: History | None = None,
    ) -> HostedRuntime:
        """A runtime that begins with this state once it is started, which happens while the copy is there.

        hosts: carries out what its jails call outside. name: by default the source's. The rest: see HostedRuntime;
        the history is an empty one.
        """
        history = History() if history is None else history
        history.begin_as(self._source.history)
        policy = self._source.policy
        counts = self._source.recorder.counts
        branch = HostedRuntime(policy, hosts, start, name or self._source.name, legacy, history, counts)
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

        Raises IncompleteForkError, CheckpointRefusedError, UnavailableError.
        """
        held = self._held
        if isinstance(held, Imaged):
            try:
                anew = not self._order.deterministic
                put_image(supervisor, held, draw_anew=anew, patience=self._patience())
                branch.carried = Carried(how="exact", missing=missing_of(held.state))
                return
            except CheckpointRefusedError as refused:
                held = self._by_value(refused.reason)
        line = self._plan.line
        made = self._made_again(branch, supervisor, held, line) if line is not None else ()
        differing = self._put(supervisor, held, self._end(held, made))
        branch.carried = Carried(
            how="rebuilt", reason=self._reason, missing=self.missing, differing=differing
        )

    def _by_value(self, reason: str) -> HandedOver:
        """Where a jail has not taken the image in. The state, as long as the source is still there."""
        with self._lock:
            if isinstance(self._held, Imaged):
                held, head, _ = self._taken(exact=False)
                assert isinstance(held, HandedOver)
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
        self, branch: HostedRuntime, supervisor: Supervisor, held: HandedOver, line: Line
    ) -> tuple[str, ...]:
        """What is there now of what could not be copied, by name, with what shares objects with it."""
        state, rebuild = held.state, self._plan.rebuild
        groups, files = rebuild.given_groups(state.groups), rebuild.given_files(state.files)
        self._put(supervisor, held, RebuildGiven(groups=groups, files=files))
        rebuilding = Rebuilding(
            branch, supervisor, rebuild, state.message.hosts, self._patience, self._plan.injected
        )
        reason = rebuilding.carry_out(line)
        if reason and not self._order.partial:
            raise IncompleteForkError((f"{', '.join(rebuild.names)}: {reason}",))
        return () if reason else rebuild.names

    def _put(
        self, supervisor: Supervisor, held: HandedOver, what: RestoreEnd | RebuildGiven
    ) -> tuple[str, ...]:
        partial = self._order.partial
        return put_whole(supervisor, held, what, partial=partial, patience=self._patience())

    def _end(self, held: HandedOver, made: Collection[str]) -> RestoreEnd:
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


class _Beginning(NoRefill):
    """See Refill. A branch's first jail begins with the copy; a later one with the injected values only."""

    def __init__(self, copy: StateCopy, branch: HostedRuntime) -> None:
        self.step = copy.point.step
        self._branch = branch
        self._copy: StateCopy | None = copy

    def fill(self, supervisor: Supervisor, inject: Callable[[], None]) -> None:
        inject()
        copy, self._copy = self._copy, None
        if copy is None:
            self.step, self._branch.carried = 0, None
        else:
            copy.fill(self._branch, supervisor)

    def forget(self) -> None:
        self._copy, self._branch.earlier = None, None

    def close(self) -> None:
        self._copy = None
