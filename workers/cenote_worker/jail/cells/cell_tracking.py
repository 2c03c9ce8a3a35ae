"""The outcome of a cell, and the kernel's side of tracking what a cell reads and writes.

A failure of the tracker never reaches the cell: the cell runs as if it were not tracked, and its trace says less.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import jail_pb2
from cenote_worker.execution.messages import MAX_KINDS, fill_error, fill_trace
from cenote_worker.execution.results import ErrorInfo, Notice
from cenote_worker.execution.trace import ANYTHING, StepTrace, key_of, kind_of
from cenote_worker.jail.cells.source import Cell
from cenote_worker.jail.forking import python_threads
from cenote_worker.jail.rendering.variables import kind_of_value
from cenote_worker.jail.tracking.files.workdir_files import FolderChanges
from cenote_worker.jail.tracking.fingerprint import fresh
from cenote_worker.jail.tracking.step_tracer import StepTracer
from cenote_worker.jail.tracking.tracker import Tracker
from cenote_worker.process.pristine import BUILTINS


@dataclass(frozen=True, slots=True, kw_only=True)
class CellUses:
    """libraries: those that a cell has imported, or has had objects of. words: names and attributes in its code."""

    libraries: frozenset[str]
    words: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOutcome:
    """The end of one cell. Output and displays went to the sink while it ran.

    value: bounded repr of a last bare expression; None for None, for a statement and after `;`.
    error: set exactly when success is False.
    reply: the last text given to `reply(...)`, None unless the cell succeeded.
    duration: seconds of wall time.
    notices: other authors' changes to names that this author relies on.
    trace: what it read and wrote; None without tracking.
    uses: what its code uses; None if it may behave differently when it runs again.
    bound_only: names that it has written, if it has certainly changed nothing else but files of the working
    directory; None if it may have.
    """

    success: bool
    value: str | None = None
    error: ErrorInfo | None = None
    reply: str | None = None
    duration: float = 0.0
    notices: tuple[Notice, ...] = ()
    trace: StepTrace | None = None
    uses: CellUses | None = None
    bound_only: frozenset[str] | None = None

    def fill(self, executed: jail_pb2.Executed) -> None:
        """Writes it into a message, but for `uses` and `bound_only`, which stay in the jail."""
        executed.success = self.success
        executed.duration = self.duration
        if self.value is not None:
            executed.value = utf8_text(self.value)
        if self.reply is not None:
            executed.reply = utf8_text(self.reply)
        if self.trace is not None:
            fill_trace(executed.trace, self.trace)
        for notice in self.notices:
            make(
                executed.notices.add,
                name=notice.name,
                author=notice.author,
                step=notice.step,
                deleted=notice.deleted,
            )
        if self.error is not None:
            fill_error(executed.error, self.error)


__builtins__ = BUILTINS

_FAILED = "watching it failed"


class CellTracking:
    """Tracks the cells of the common namespace. An author's own names are not tracked."""

    def __init__(
        self,
        namespace: dict[str, object],
        is_collecting: Callable[[], bool],
        changes: FolderChanges | None,
    ) -> None:
        """is_collecting: whether the cells have the garbage collector on. changes: see `WorkdirFiles`."""
        self._namespace = namespace
        self.tracker = Tracker(namespace, str(Path.cwd()), is_collecting=is_collecting, changes=changes)
        self._watch: StepTracer | None = None
        self._begun = self._awaits = False
        self.bound_only: frozenset[str] | None = None
        """Names bound by the last cell. See `CellOutcome`."""
        self.uses: CellUses | None = None
        """Likewise."""

    def look_ahead(self) -> None:
        """Does in advance what the next cell would have to do first, after `forget`. Never raises."""
        with suppress(Exception, MemoryError):
            self.tracker.look_ahead()

    def begin(self, cell: Cell, namespace: dict[str, object]) -> None:
        """Called when a compiled cell is about to run. Raises nothing but an interrupt."""
        if namespace is not self._namespace:
            self.tracker.forget()  # objects may be reached from either namespace
            return
        self._begun, self._awaits = True, cell.awaits  # no name leads to an event loop
        try:
            self._watch = self.tracker.begin(cell.body, cell.last, displays=cell.last is not None)
        except Exception:
            self.tracker.forget()

    def end(self, error: ErrorInfo | None) -> StepTrace | None:
        """Called after the cell; None for one in a namespace that is not tracked. Never raises."""
        python_threads.end_waiting_threads()  # they are not the user's
        watch, self._watch = self._watch, None
        begun, self._begun = self._begun, False
        self.bound_only = self.uses = None
        failure = "" if error is None else error.type
        if watch is not None:
            with suppress(Exception, MemoryError):
                trace = self._with_kinds(watch.end(failure))
                is_more = failure or self._awaits or self.tracker.wants_copy
                self.bound_only = None if is_more else watch.bound_only
                self.uses = None if is_more else CellUses(libraries=watch.libraries, words=watch.words)
                return trace
        self.forget()
        if begun:
            version = fresh()
            return StepTrace(
                reads={ANYTHING: version},
                writes={ANYTHING: version},
                opaque=(_FAILED,),
                unrepeatable=(_FAILED,),
            )
        return StepTrace(unrepeatable=(f"it ended with {failure}",)) if failure else None

    def _with_kinds(self, trace: StepTrace) -> StepTrace:
        present = (each for each, version in trace.writes.items() if version and kind_of(each) == "name")
        values = ((each, self._namespace.get(key_of(each), self)) for each in islice(present, MAX_KINDS))
        kinds = {each: kind_of_value(value) for each, value in values if value is not self}
        return replace(trace, kinds=kinds)

    def forget(self) -> None:
        """Called when values were brought in or taken away from outside."""
        with suppress(Exception):
            self.tracker.forget()
