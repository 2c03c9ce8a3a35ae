"""Branches of a runtime: its state by value, copied once in memory, and fresh runtimes that begin with it.

By value, not by forking the process: a branch is a jail of its own, with limits, files and a history of its own, and
ends on its own. What a pickle cannot carry is named before anything starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from cenote_proto.v1.checkpoint_pb2 import RestoreEnd
from cenote_security.errors import UsageError
from cenote_worker.checkpoints.fidelity import missing_of
from cenote_worker.checkpoints.handover import HandedOver
from cenote_worker.history.history import History
from cenote_worker.hosted.refill import Source
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.state_transfer import handed_over, put_whole
from cenote_worker.supervisor.host_line import HostHandler
from cenote_worker.supervisor.requests import Listener
from cenote_worker.supervisor.supervisor import Supervisor


class StateCopy:
    """The state of a runtime as it was when this was made. Close it; branches that have begun do not need it."""

    def __init__(self, source: HostedRuntime, held: HandedOver, *, draw_anew: bool) -> None:
        self._source = source
        self._held = held
        self._draw_anew = draw_anew

    @classmethod
    def of(cls, source: HostedRuntime, *, deterministic: bool) -> Self:
        """Copies the state when the cells that were sent before are over.

        deterministic: branches draw the random numbers that the source goes on to draw.
        Raises CheckpointRefusedError, what `HostedRuntime.start` raises, OSError when there is no memory.
        """
        return cls(source, handed_over(source, source.started()), draw_anew=not deterministic)

    @property
    def step(self) -> int:
        """The last one that the state has."""
        return self._held.state.message.step

    @property
    def missing(self) -> tuple[str, ...]:
        """Each thing that branches will not have, with the reason."""
        return missing_of(self._held.state)

    def runtime(self, hosts: HostHandler, *, partial: bool) -> HostedRuntime:
        """A runtime that begins with this state once it is started, which happens while the copy is there.

        hosts: carries out what its jails call outside. partial: what cannot be rebuilt is left out.
        """
        history = History()
        history.read([self._source.history.event(index) for index in range(self._source.history.size)])
        branch = HostedRuntime(self._source.policy, hosts, name=self._source.name, history=history)
        for injection in self._source.noted.all():
            if not injection.seat.private:
                branch.declare(replace(injection, values=injection.values.duplicate(), number=0))
        branch.count_on(max(self.step, history.tree.last), None)
        branch.refill = _Beginning(self, partial=partial)
        return branch

    def fill(self, supervisor: Supervisor, *, partial: bool) -> None:
        """Puts the state into a jail that has the injected values. Raises IncompleteForkError, UnavailableError."""
        message = self._held.state.message
        there = {name for group in self._held.state.groups for name in group.names} | set(message.hosts)
        end = RestoreEnd(
            names=[name for name in message.names if name in there],
            modules=message.modules,
            step=message.step,
            draw_anew=self._draw_anew,
        )
        put_whole(supervisor, self._held, end, partial=partial)

    def close(self) -> None:
        self._held.close()


class _Beginning:
    """See Refill. A branch's first jail begins with the copy; a later one with the injected values only."""

    begins_with = ""
    exact = False
    stores = False

    def __init__(self, copy: StateCopy, *, partial: bool) -> None:
        self.step = copy.step
        self._copy: StateCopy | None = copy
        self._partial = partial

    def acknowledging(self, listener: Listener, _source: Source, _key: str) -> Listener:
        return listener

    def fill(self, supervisor: Supervisor) -> None:
        copy, self._copy = self._copy, None
        if copy is None:
            self.step = 0
        else:
            copy.fill(supervisor, partial=self._partial)

    def forget(self) -> None:
        self._copy = None

    def rest(self) -> None:
        raise UsageError("nothing of this runtime is stored; its jail would end with its state")

    def began_anew(self) -> None:
        pass

    def close(self) -> None:
        self._copy = None
