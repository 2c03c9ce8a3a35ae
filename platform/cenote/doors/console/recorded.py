"""Records without their runtimes, as the console shows them: histories in databases, checkpoints in a store.

Nothing is written: another process may go on writing there, and what it adds is shown.
"""

from __future__ import annotations

import asyncio
import gc
import hmac
import secrets
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import Response

from cenote.doors.console.app import RECORD_PAGES, Console
from cenote.doors.console.session import PageRoute, StepPage, Visit, page_number
from cenote.doors.http_app import LOOPBACK
from cenote.doors.open_runtimes import ListedRuntime, NotOpenError
from cenote.doors.request_checks import ServerNames, SiteCheck
from cenote.harness.questions.execution_state import ExecutionState
from cenote.harness.record.step import Step
from cenote_security.errors import (
    HistoryUnavailableError,
    NotAuthenticatedError,
    UsageError,
)
from cenote_worker.checkpoints.manifest import Manifest
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.history.history import History
from cenote_worker.history.store import StoredHistories

SUFFIXES: Final = (".sqlite", ".sqlite3", ".db")
"""Of files in a folder that are tried as histories."""

READ_WHOLE: Final = 1_000
"""Events of a history that are read at once for the page of its steps."""

MOST_NAMES: Final = 500
"""Variables and files of a checkpoint on its page."""


class RecordedRuntime:
    """One history in a database, as far as it has been read."""

    def __init__(self, stored: StoredHistories, runtime: str) -> None:
        self._stored = stored
        self._runtime = runtime
        self._turn = threading.Lock()
        self._history = History()
        self._id = ""

    async def state(self) -> ExecutionState:
        """See SeenRuntime. Raises HistoryUnavailableError."""
        return await asyncio.to_thread(ExecutionState, self._read)

    async def page(self, before: int | None, size: int) -> StepPage | None:
        """See PagedRuntime. Raises HistoryUnavailableError."""
        return await asyncio.to_thread(self._page, before, size)

    def _page(self, before: int | None, size: int) -> StepPage | None:
        if self._history.size or self._stored.size(self._runtime) <= READ_WHOLE:
            return None
        head = self._stored.head(self._runtime)
        if head is None:
            return None
        count = self._stored.step_count(self._runtime)
        end = count if before is None else min(before, count)
        begin = max(0, end - size)
        steps = tuple(map(Step, self._stored.steps(self._runtime, begin, end)))
        return StepPage(steps=steps, begin=begin, count=count, head=head)

    def _read(self) -> History:
        with self._turn:
            found = self._stored.runtimes().get(self._runtime, "")
            if found != self._id:
                self._history, self._id = History(id=found), found
            before = self._history.size
            self._history.read(self._stored.events(self._runtime, before))
            if self._history.size - before > READ_WHOLE:
                gc.freeze()  # else the collector goes through all of it again, while a page is made
            return self._history


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    """Those of a runtime in a store."""

    store: CheckpointStore
    runtime: str


class Records:
    """The histories and the stores in some places, by names that are unique among them."""

    changes: Final = False

    def __init__(self, places: Sequence[str | Path]) -> None:
        """places: files or URLs of databases, folders of such files or of checkpoints.

        Raises UsageError, HistoryUnavailableError, NewerHistoryError, StoreFailedError.
        """
        self._histories: dict[str, RecordedRuntime] = {}
        self.checkpoints: dict[str, _Checkpoints] = {}
        for place in places:
            self._add(place)
        if not (self._histories or self.checkpoints):
            raise UsageError(
                f"there is no history in {', '.join(map(str, places))}: name what was given as `history` or `store`"
            )

    @property
    def histories(self) -> tuple[str, ...]:
        return tuple(sorted(self._histories))

    def through(self, _door: str) -> Records:
        """See SeenRuntimes."""
        return self

    async def listed(self) -> list[ListedRuntime]:
        return [ListedRuntime(name=name) for name in self.histories]

    async def get(self, name: str) -> RecordedRuntime:
        """Raises NotOpenError."""
        if name not in self._histories:
            raise NotOpenError(name, self.histories)
        return self._histories[name]

    def _add(self, place: str | Path) -> None:
        path = Path(place)
        if isinstance(place, str) and "://" in place and not place.startswith(("postgresql", "sqlite")):
            self._add_checkpoints(CheckpointStore(place))
        elif not (isinstance(place, str) and "://" in place) and path.is_dir():
            for file in sorted(path.iterdir()):
                if file.suffix in SUFFIXES and stat.S_ISREG(file.lstat().st_mode):
                    self._try_histories(file)
            self._add_checkpoints(CheckpointStore(path))
        else:
            self._add_histories(place)

    def _try_histories(self, file: Path) -> None:
        """Of a folder: other programs' databases may lie there, too."""
        try:
            self._add_histories(file)
        except HistoryUnavailableError:
            return

    def _add_histories(self, place: str | Path) -> None:
        stored = StoredHistories.at(place)
        stem = "history" if "://" in str(place) else Path(place).stem
        for runtime in stored.runtimes():
            self._histories[self._free(runtime or stem)] = RecordedRuntime(stored, runtime)

    def _add_checkpoints(self, store: CheckpointStore) -> None:
        for runtime in store.names():
            if store.checkpoints(runtime):
                self.checkpoints[_in_an_address(runtime)] = _Checkpoints(store, runtime)

    def _free(self, name: str) -> str:
        plain, number = _in_an_address(name), 1
        found = plain
        while found in self._histories:
            number += 1
            found = f"{plain} ({number})"
        return found


def _in_an_address(name: str) -> str:
    """Servers read `%2F` in a path as the end of a part of it."""
    return name.replace("%", "%25").replace("/", "%2F")


class OneTimeCaller:
    """One token that opens the console once; the session that it begins goes on."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.token = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        self._used = False

    def redeem(self, token: str) -> str:
        """What the session is kept under, for the token. Raises NotAuthenticatedError the second time."""
        if self._used or not hmac.compare_digest(self.token.encode(), token.encode(errors="replace")):
            raise NotAuthenticatedError(
                "this address opens the console once, and was used; start `cenote view` again for another"
            )
        self._used = True
        return self._session

    async def runtimes(self, token: str) -> Records:
        if not hmac.compare_digest(self._session.encode(), token.encode(errors="replace")):
            raise NotAuthenticatedError("open the address that `cenote view` has printed")
        return self.records


async def _index(visit: Visit) -> Response:
    assert isinstance(visit.door, Records)
    return visit.page(
        "records",
        title="Stored records",
        histories=visit.door.histories,
        stores=sorted(visit.door.checkpoints),
    )


async def _checkpoints_page(visit: Visit) -> Response:
    """What a store has of a runtime, and what is in one of its checkpoints."""
    assert isinstance(visit.door, Records)
    found = visit.door.checkpoints.get(visit.name)
    if found is None:
        raise NotOpenError(visit.name, tuple(visit.door.checkpoints))
    number = visit.request.query_params.get("number", "")
    listed, manifest = await asyncio.to_thread(_look_up, found, number)
    return visit.page(
        "checkpoints",
        title=f"{visit.name}, checkpoints",
        name=visit.name,
        listed=listed,
        manifest=manifest,
        variables=list(_variables(manifest))[:MOST_NAMES],
        files=manifest.state.files[:MOST_NAMES],
    )


def _look_up(found: _Checkpoints, number: str) -> tuple[Sequence[object], Manifest]:
    listed = found.store.checkpoints(found.runtime)
    return listed, found.store.manifest(found.runtime, page_number(number))


def _variables(manifest: Manifest) -> Iterator[tuple[tuple[str, ...], int]]:
    """Names that are stored together, and their bytes."""
    for group in manifest.state.groups:
        yield group.names, sum(part.size for part in group.parts)


PAGES: Final[tuple[PageRoute, ...]] = (
    ("GET", "/", _index),
    ("GET", "/stores/{runtime}", _checkpoints_page),
    *RECORD_PAGES,
)


def record_app(caller: OneTimeCaller) -> Starlette:
    """The pages of stored records, on the loopback."""
    console = Console(caller, PAGES, caller.redeem)
    return Starlette(routes=console.routes(), middleware=[Middleware(SiteCheck, names=ServerNames(LOOPBACK))])
