"""Branches of a runtime: its state by value, copied once in memory, and fresh runtimes that begin with it.

By value, not by forking the process: a branch is a jail of its own, with limits, files and a history of its own, and
ends on its own. What a pickle cannot carry is named before anything starts.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final, Self

from cenote_security.errors import UsageError
from cenote_security.sealed import Buffer
from cenote_worker.checkpoints.errors import IncompleteForkError, IncompleteRestoreError
from cenote_worker.checkpoints.fidelity import fidelity
from cenote_worker.checkpoints.manifest import Manifest
from cenote_worker.checkpoints.restoring import Restoration, of_copy
from cenote_worker.checkpoints.writer import Draft
from cenote_worker.history.history import History
from cenote_worker.hosted.refill import Source
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.state_transfer import collected, put
from cenote_worker.supervisor.host_line import HostHandler
from cenote_worker.supervisor.requests import Listener
from cenote_worker.supervisor.supervisor import Supervisor

_NUMBER: Final = 1
"""Of the one file that a copy in memory is."""


class StateCopy:
    """The state of a runtime as it was when this was made. Close it; branches that have begun do not need it."""

    def __init__(self, source: HostedRuntime, manifest: Manifest, restoration: Restoration) -> None:
        self._source = source
        self._manifest = manifest
        self._restoration = restoration

    @classmethod
    def of(cls, source: HostedRuntime, *, deterministic: bool) -> Self:
        """Copies the state when the cells that were sent before are over.

        deterministic: branches draw the random numbers that the source goes on to draw.
        Raises CheckpointRefusedError, what `HostedRuntime.start` raises, OSError when there is no memory.
        """
        held = _Held()
        draft = Draft(held, _NUMBER, {}, packs=False)
        state, _ = collected(source, source.started(), draft)
        manifest = Manifest(
            number=_NUMBER,
            parent=0,
            fence=0,
            label="",
            made=time.time(),
            state=state,
            chunks={key: draft.places[key] for key in state.lengths},
        )
        return cls(source, manifest, of_copy(held, manifest, draw_anew=not deterministic))

    @property
    def step(self) -> int:
        """The last one that the state has."""
        return self._manifest.state.message.step

    @property
    def missing(self) -> tuple[str, ...]:
        """Each thing that branches will not have, with the reason."""
        return fidelity(self._manifest, self._manifest.state.message.hosts).missing

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
        for piece in self._restoration.pieces:
            try:
                put(supervisor, piece, self._source.name, _NUMBER)
            except IncompleteRestoreError as error:
                if not partial:
                    raise IncompleteForkError(error.missing) from None

    def close(self) -> None:
        self._restoration.close()


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


class _Held:
    """The chunks of one copy: a draft while it is written, then what is read."""

    def __init__(self) -> None:
        self._files = {_NUMBER: bytearray()}

    def write(self, data: Buffer) -> None:
        self._files[_NUMBER] += memoryview(data).cast("B")

    def publish(self) -> None:
        """Nobody else can see it."""

    def discard(self) -> None:
        """It goes with its last reader."""

    def read(self, number: int, offset: int, size: int) -> memoryview:
        return memoryview(self._files[number])[offset : offset + size]
