"""Makes a new platform of a backup: all of it, or nothing.

The state folder is filled beside its place, and renamed to it at the end. A database on a server is filled by one
transaction, just before that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from cenote.gateway.audit.entries import AuditEvent, Facts
from cenote.gateway.audit.reader import LogVerification, verify
from cenote.gateway.audit.recorder import Notices
from cenote.gateway.backup.archive import BackupReader, BackupSums, BadBackupError, Row, load
from cenote.gateway.backup.backup import CLAIMED, Progress
from cenote.gateway.store.database import Database, FormerRows
from cenote.gateway.store.schema import MIGRATIONS
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.state_locations import StateLocations, keep_store_url
from cenote_security.auth.secret_files import make_private_folder, read_secret_file, replace_file, sync_folder
from cenote_security.errors import MalformedValueError, UnavailableError, UsageError
from cenote_security.ids import RuntimeId, TenantId
from cenote_worker.checkpoints.copies import CheckpointPlacing
from cenote_worker.checkpoints.errors import StoreFailedError
from cenote_worker.checkpoints.store import CheckpointStore

_KEYS: Final = frozenset(("audit.key", "master.key", "tls", "teams", "jobs"))
"""What a backup may put into the state folder besides records, log and states."""

_STAGING: Final = ".restoring"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """made: when the backup was, in seconds since the epoch. problems: what is not as it should be, and was not when
    the backup was made.
    """

    made: float
    tenants: int
    runtimes: int
    stored: int
    entries: int
    with_store: bool
    problems: tuple[str, ...]


def restore(
    state: StateFolder,
    path: Path,
    *,
    database: str = "",
    store: str = "",
    check_only: bool = False,
    going_on: Progress = lambda _: None,
) -> RestoreReport:
    """Fills an empty state folder. database: an empty one by URL, else a file. store: an empty one, else a folder.

    check_only: restore to a folder beside it, and remove that again. Raises BadBackupError, UsageError for a target
    that is not empty, UnavailableError for one that cannot be written, and what its parts raise.
    """
    reader = BackupReader(path)
    if reader.header.schema > len(MIGRATIONS):
        raise BadBackupError(
            path,
            f"its records have schema {reader.header.schema}, and this version of Cenote knows {len(MIGRATIONS)}",
            f"use the version that made it ({reader.header.cenote:.20})",
        )
    if not check_only:
        _refuse_state(state)
    total = path.stat().st_size
    sums = reader.check(lambda done: going_on(f"checking the backup, {100 * done // total} %"))
    with _staging(state) as folder, _explained(state):
        target = "" if check_only else store
        states = StateLocations(target or str(folder.store), folder.store)
        if target and reader.header.with_store:
            _refuse_store(states, sums, target)
        stored, problems = _place(reader, folder, states, going_on)
        found = verify(folder.audit, read_secret_file(folder.audit_key)) if folder.audit.exists() else None
        problems += _audit_problems(found)
        going_on("restoring records")
        place = database if database and not check_only else folder.database
        with Database(
            place, filled=FormerRows(schema=reader.header.schema, rows=_rows(reader, sums))
        ) as records:
            if isinstance(place, str):
                replace_file(folder.database_url, f"{place}\n".encode())
            facts: Facts = {"made_at": int(reader.header.made * 1e6), "by": reader.header.cenote}
            Notices(records).leave(AuditEvent(kind="platform.restored", facts=facts))
            tenants = len(records.rows("SELECT id FROM tenants"))
            runtimes = len(records.rows("SELECT id FROM runtimes"))
        if store or reader.header.with_store:
            keep_store_url(folder, store or str(state.store))
        if not check_only:
            _rename(folder.path, state.path)
    return RestoreReport(
        made=reader.header.made,
        tenants=tenants,
        runtimes=runtimes,
        stored=stored,
        entries=found.last.number if found else 0,
        with_store=reader.header.with_store,
        problems=tuple(problems),
    )


def _refuse_state(state: StateFolder) -> None:
    if state.path.exists() and any(state.path.iterdir()):
        raise UsageError(
            f"{str(state.path)!r} is not empty; a backup is restored where no platform is: end the one that may run "
            "(`cenote down`) and move the folder away, or name another one with XDG_STATE_HOME"
        )


def _refuse_store(states: StateLocations, sums: BackupSums, target: str) -> None:
    for tenant in {name.split("/")[1] for name in sums.members if name.startswith("store/")}:
        checkpoints = states.checkpoints(TenantId(tenant))
        if checkpoints is not None and _has_any(checkpoints):
            raise UsageError(
                f"the store {target!r} is not empty: it has states of runtimes of the backup's tenants; name another "
                "one, or remove what an interrupted restore has left there"
            )


def _has_any(checkpoints: CheckpointStore) -> bool:
    try:
        return bool(checkpoints.names())
    except StoreFailedError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # no folder of an object store either
            return False
        raise


@contextmanager
def _staging(state: StateFolder) -> Iterator[StateFolder]:
    """A folder beside the place of the state, removed at the end unless it was renamed. What a killed restore has
    left there is removed first.
    """
    path = state.path.with_name(f".{state.path.name}{_STAGING}")
    with ExitStack() as opened, _explained(state):
        make_private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        opened.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnavailableError("a backup is being restored here already; wait for its end") from None
        opened.callback(shutil.rmtree, path, ignore_errors=True)
        for leftover in path.iterdir():
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        yield StateFolder(path=path)


def _place(
    reader: BackupReader, folder: StateFolder, states: StateLocations, going_on: Progress
) -> tuple[int, list[str]]:
    """All but the records. Returns the number of runtimes with states, and problems with them."""
    stored, problems = 0, list[str]()
    placing: tuple[str, CheckpointPlacing] | None = None

    def finish() -> None:
        nonlocal placing
        if placing is not None and (problem := placing[1].close()):
            problems.append(f"the state of runtime {placing[0]} is damaged in the backup: {problem}")
        placing = None

    for name, content in reader.members():
        kind, *parts = name.split("/")
        if kind == "state":
            if parts[0] not in _KEYS:
                raise BadBackupError(reader.path, f"{name!r:.100} has no place in a state folder")
            _write(folder.path.joinpath(*parts), content)
        elif kind == "audit":
            _write(folder.audit.joinpath(*parts), content)
        elif kind == "store":
            tenant, runtime, file = parts
            if file == CLAIMED:
                finish()
                checkpoints = states.checkpoints(TenantId(tenant))
                assert checkpoints is not None  # there is a folder at least
                placing = (runtime, CheckpointPlacing(checkpoints.folder(runtime)))
                stored += 1
                going_on(f"restoring states, {stored} runtimes")
            elif file == "history":
                path = states.record_file(TenantId(tenant), RuntimeId(runtime))
                assert path is not None
                _write(path, content)
            elif placing is None or placing[0] != runtime:
                raise BadBackupError(reader.path, f"{name!r:.100} is not where it belongs")
            else:
                placing[1].put(int(file.partition(".")[0]), content)
    finish()
    return stored, problems


def _rows(reader: BackupReader, sums: BackupSums) -> Iterator[tuple[str, Row]]:
    def takes(table: str, row: Row) -> bool:
        return table != "runtimes" or row.get("id") not in sums.left_out

    try:
        for name, content in reader.members():
            if name.startswith("records/"):
                yield from load(name.removeprefix("records/").removesuffix(".jsonl"), content, takes)
    except MalformedValueError as error:
        raise BadBackupError(reader.path, f"its records cannot be read: {error}") from None


def _audit_problems(found: LogVerification | None) -> list[str]:
    if found is None or found.broken is None:
        return []
    return [
        f"the audit log is not as it was written, from entry {found.broken.number}: {found.broken.reason}"
    ]


def _write(path: Path, content: IO[bytes]) -> None:
    make_private_folder(path.parent)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        shutil.copyfileobj(content, file, 2**20)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def _rename(path: Path, place: Path) -> None:
    """Onto a missing folder, or an empty one: the kernel refuses any other."""
    sync_folder(path)
    path.rename(place)
    sync_folder(place.parent)


@contextmanager
def _explained(state: StateFolder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or state.path
        raise UnavailableError(f"{str(where)!r} cannot be written: {error.strerror or error}") from None
