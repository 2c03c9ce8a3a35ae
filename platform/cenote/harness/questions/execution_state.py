"""ExecutionState: questions about what has happened in a runtime.

Most sessions ask nothing. After the first question, what answers need is worked out as the history goes on, and
kept for the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, SupportsIndex

from cenote.harness.artifacts.declaration import UnknownArtifactError, declared
from cenote.harness.artifacts.staleness import Sightings, Survey, TrackedArtifact, tracked
from cenote.harness.export import Graph, ShownSteps, export, graph, takers
from cenote.harness.questions import provenance
from cenote.harness.questions.provenance import Blame, Dependents, Moment, StateDiff, blame, moment
from cenote.harness.record.history_index import HistoryIndex, location_of
from cenote.harness.record.step import Step
from cenote.harness.slicing.slices import Slice, SlicedLines, slice_of
from cenote_security.errors import NotCopiedError, UsageError
from cenote_worker.history.events import ArtifactDeclared, EnvironmentUsed, packages_of
from cenote_worker.history.history import History, no_collections
from cenote_worker.history.step import START, StepRecord
from cenote_worker.history.tree import located, written


class KnownSightings:
    """Sightings of the current line, kept beside its history: clients ask for artifacts again after further steps."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held by the thread that asks. Threads that add to the history do not wait for it."""
        self._of: tuple[Mapping[str, ArtifactDeclared], int] = ({}, START)
        self._seen = Sightings({})

    def went_on(self, history: History, records: Sequence[StepRecord]) -> None:
        """See HistoryObserver. Another line, as after a rollback, waits for a question."""
        if history.units and self.lock.acquire(blocking=False):
            try:
                units, known = self._of
                stays = [record for record in records if record.stays]
                if len(records) != 1 or (stays and units is history.units and stays[0].parent == known):
                    self.along(history, stays[-1].number if stays else history.tree.head)
            finally:
                self.lock.release()

    def along(self, history: History, end: int) -> Sightings:
        """Sightings along the line to a step, for what is declared now."""
        units, known = self._of
        if units is not history.units or history.tree.ancestor(known, end) != known:
            known, self._seen = START, Sightings(declared(history.units))
        self._seen.grow(history.tree.between(known, end))
        self._of = history.units, end
        return self._seen


def keep_ready(history: History) -> None:
    """Keeps answers up to date from now on. Reads the history so far; calling it again costs nothing."""
    history.accompany(ShownSteps, SlicedLines, KnownSightings)


class ExecutionState:
    """What has happened in a runtime, for every client that holds it.

    An embedded runtime's is always current. A remote one's is what this client has read: getting `runtime.state`
    reads the news, and so does `refresh`. Questions are answered from memory and don't wait. Where a runtime has not
    traced a step, or not all of it, answers name that step as unknown or doubtful; they never guess.

    Questions without a step are about the line that leads to the head, the state that is live now. Symbols are names
    of variables (`author/name` in a private namespace), or locations such as `file:report.md` and `hidden:random`.
    """

    def __init__(self, source: Callable[[], History]) -> None:
        """source: gives the history, brought up to date; may block where the runtime is elsewhere."""
        self._source = source
        self.refresh()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.steps)} steps, head {self.head}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotCopiedError(
            "an ExecutionState",
            "it belongs to a runtime that lives; pickle what it answers, such as `steps`, `graph()` or a plan, or "
            "write it down with `export('run.json')`",
        )

    def refresh(self) -> None:
        """Reads what has happened since. Raises UnavailableError when a platform cannot be reached."""
        history = self._source()
        keep_ready(history)
        self._past = HistoryIndex(history)

    def flush(self) -> None:
        """Waits until what has happened is written to the file or database that was given for it, if one was.

        Raises HistoryUnavailableError, HistoryTakenError when it could not be.
        """
        self._past.flush()

    # -- steps --

    @property
    def head(self) -> int:
        """The step whose state is live; 0 before the first."""
        return self._past.head

    @property
    def steps(self) -> tuple[Step, ...]:
        """Cells on the line to the head, oldest first. `history` has everything."""
        return self._past.steps(record for record in self._past.line(self.head) if record.kind == "cell")

    @property
    def history(self) -> tuple[Step, ...]:
        """All steps of all lines in the order in which they ended, changes without code among them."""
        return self._past.steps(self._past.all())

    def step(self, number: int) -> Step:
        """Raises UnknownEntryError for a step that is not there."""
        return Step(self._past.get(number))

    def line(self, end: int) -> tuple[Step, ...]:
        """From the first step to this one. Raises UnknownEntryError."""
        return self._past.steps(self._past.line(end))

    def steps_by(
        self,
        *,
        author: str | None = None,
        symbol: str | None = None,
        artifact: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> tuple[Step, ...]:
        """The steps of all lines to which all of this applies, in the order in which they ended.

        author: empty for the owner. symbol: they are known to have read or written it. artifact: a file, the same.
        since, until: when they began, in seconds since the epoch; `until` is exclusive.
        """
        for moment_asked in (since, until):
            if moment_asked is not None and not isinstance(moment_asked, int | float):
                raise UsageError(f"a time is in seconds since the epoch, not {moment_asked!r:.100}")
        wanted = [location_of(symbol)] if symbol is not None else []
        wanted += [location_of(f"file:{artifact}")] if artifact is not None else []

        def fits(record: StepRecord) -> bool:
            return (
                (author is None or record.author == author)
                and (since is None or record.started >= since)
                and (until is None or record.started < until)
                and all(place in _touched(record) for place in wanted)
            )

        return self._past.steps(filter(fits, self._past.all()))

    def at(self, number: int) -> Moment:
        """What was live when a step ended; 0: before the first. Raises UnknownEntryError."""
        return moment(self._past, number)

    # -- artifacts --

    @property
    def artifacts(self) -> tuple[TrackedArtifact, ...]:
        """What was declared, by name, on the line to the head: versions, dependencies, why it is out of date."""
        history, size = self._past.history, self._past.size
        if not history.units:
            return ()
        last = history.beside(_LastArtifacts)
        if last.told[0] != size:
            known, units = history.beside(KnownSightings), declared(history.units)
            with known.lock, no_collections(size):
                survey = Survey((), units, known.along(history, self.head))
                last.told = size, tracked(survey, history.suites)
        return last.told[1]

    def artifact(self, name: str) -> TrackedArtifact:
        """Raises UnknownArtifactError."""
        if not isinstance(name, str):
            raise UsageError(f"an artifact is asked for by its name, not by {name!r:.100}")
        for found in self.artifacts:
            if found.name == name:
                return found
        raise UnknownArtifactError(name, self._past.history.units)

    # -- dependencies --

    def blame(self, symbol: str, at: int | None = None) -> Blame:
        """Who last wrote it, in the state after a step. Raises UnknownNameError for what can't have been written."""
        return blame(self._past, symbol, self._end(at))

    def dependents(self, what: str | int, at: int | None = None) -> Dependents:
        """Steps and symbols that depend on what a symbol holds now, or on a step, directly or through others.

        Raises UnknownNameError, UnknownEntryError.
        """
        if isinstance(what, int):
            return provenance.of_step(self._past, what, self._end(at))
        return provenance.of_symbol(self._past, what, self._end(at))

    def slice(self, symbol: str, at: int | None = None) -> Slice:
        """The steps and model calls that a value depends on, and the program that they make.

        Raises UnknownNameError for what can't have been written.
        """
        return slice_of(self._past, symbol, self._end(at))

    def diff(self, a: int, b: int, other: ExecutionState | None = None) -> StateDiff:
        """How the state after step `b` differs from that after step `a`. Raises UnknownEntryError.

        other: whose step `b` is: the state of a branch, or of the runtime that this is a branch of.
        """
        return provenance.diff(self._past, a, b, other._past if other is not None else None)

    def environment(self, number: int | None = None) -> EnvironmentUsed:
        """The packages that a step ran with, by default those of the last jail. Raises UnknownEntryError.

        Without a `digest` they were those of the process that started the jail, which no record names.
        """
        used = self._past.history.environments
        if number is None:
            return used[-1] if used else EnvironmentUsed()
        self._past.check(number)
        return packages_of(number, used)

    # -- for other programs --

    def graph(self, steps: Iterable[int] | None = None) -> Graph:
        """Nodes and edges of all lines, as plain data.

        steps: only these, with the edges that lead to them, from whichever step. Raises UnknownEntryError.
        """
        return graph(self._past, steps)

    def takers(self, number: int) -> tuple[int, ...]:
        """Numbers of the steps that took something from this one, or may have: the sources of their edges name it.

        Raises UnknownEntryError.
        """
        return takers(self._past, number)

    def export(self, path: str | Path) -> Path:
        """Writes a notebook (`.ipynb`) of the line to the head, or everything as `.json`, `.mmd` (Mermaid) or `.dot`.

        Raises UsageError for any other suffix, UnavailableError where nothing can be written.
        """
        return export(self._past, path)

    def _end(self, at: int | None) -> int:
        return self.head if at is None else at


class _LastArtifacts:
    """The latest description of the artifacts, kept beside their history: clients that ask for one ask for others."""

    def __init__(self) -> None:
        self.told: tuple[int, tuple[TrackedArtifact, ...]] = (-1, ())
        """Number of events so far, and the artifacts then. Replaced as a whole."""


def _touched(record: StepRecord) -> set[str]:
    reads = record.trace.reads if record.trace is not None else ()
    return {*(located(record, each) for each in reads), *written(record)}
