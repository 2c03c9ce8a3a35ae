"""Puts a stored state into a fresh jail."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cenote_security.errors import MalformedValueError
from cenote_worker.checkpoints.errors import IncompleteRestoreError
from cenote_worker.checkpoints.restoring import Piece, Restoration
from cenote_worker.hosted.rebuilding import Rebuilding
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.state_transfer import put
from cenote_worker.rebuilding.line import Line
from cenote_worker.rebuilding.line_record import read_line
from cenote_worker.supervisor.supervisor import Supervisor


class Filling:
    """Of one jail of a runtime, with one state, which stays the caller's.

    partial: what cannot be had may be left out. line: once it is done, the steps that led to the state, where some
    had to be run again.
    """

    def __init__(self, runtime: HostedRuntime, ready: Restoration, name: str, *, partial: bool) -> None:
        """name: of the runtime in its store."""
        self._runtime = runtime
        self._ready = ready
        self._name = name
        self._partial = partial
        self.line: Line | None = None
        self.differing: tuple[str, ...] = ()
        """Once it is done: what is not as it was, a line each."""

    def carry_out(self, supervisor: Supervisor, inject: Callable[[], None]) -> None:
        """inject: see Refill.fill. Raises IncompleteRestoreError, UnavailableError."""
        self._put_all(supervisor, self._ready.lent)
        inject()
        self._put_all(supervisor, self._ready.given)
        if self._ready.record:
            self._rebuild(supervisor)
        self._put_all(supervisor, self._ready.pieces)

    def _put_all(self, supervisor: Supervisor, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            try:
                number = self._ready.manifest.number
                self.differing += put(supervisor, piece, self._name, number, partial=self._partial)
            except IncompleteRestoreError:
                if not self._partial:
                    raise

    def _rebuild(self, supervisor: Supervisor) -> None:
        manifest = self._ready.manifest
        rebuilding = Rebuilding(self._runtime, supervisor, manifest.rebuild, manifest.state.message.hosts)
        try:
            self.line = read_line(self._ready.record)
            reason = rebuilding.carry_out(self.line)
        except MalformedValueError as error:
            reason = str(error)
            rebuilding.give_up()
        if reason and not self._partial:
            lost = ", ".join(manifest.rebuild.names)
            raise IncompleteRestoreError(self._name, manifest.number, (f"{lost}: {reason}",))
