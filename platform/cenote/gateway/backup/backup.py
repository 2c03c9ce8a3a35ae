"""Makes a backup of a platform, which may run meanwhile.

What is read first must not name what is read later and may be gone by then. So the records come first, as of one
moment; the states and the audit log after them have all that the records name, and maybe later steps. That is what a
platform finds that was killed, and it continues from there in the same way. What a client was answered before the
backup began is in it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import IO, Final

from cenote.gateway.audit.entries import START, AuditEvent, Facts
from cenote.gateway.audit.reader import copy_log
from cenote.gateway.audit.recorder import Notices
from cenote.gateway.backup.archive import BackupHeader, BackupWriter, dump
from cenote.gateway.store.database import Database, database_place
from cenote.gateway.store.schema import MIGRATIONS, TABLES
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.state_locations import StateLocations, kept_store_url
from cenote_security.auth.secret_files import read_secret_file
from cenote_security.errors import UnavailableError
from cenote_security.ids import RuntimeId, TenantId
from cenote_worker.checkpoints.copies import copy_checkpoints

CLAIMED: Final = "claimed"
"""The member that says that a runtime has a place in the store, even if there is no checkpoint yet."""

_SPOOL: Final = 8 * 2**20
"""Bytes of a table in memory; larger ones are in a nameless file for a while."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """What is in a backup. entries: of the audit log. without_state: names of durable runtimes whose states are
    missing where they should be.
    """

    path: str
    size: int
    tenants: int
    runtimes: int
    stored: int
    entries: int
    without_state: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runtime:
    tenant: TenantId
    id: RuntimeId
    name: str
    in_store: bool


def back_up(
    state: StateFolder,
    path: Path,
    *,
    store: str = "",
    with_store: bool = True,
    going_on: Progress = lambda _: None,
) -> BackupReport:
    """Writes a backup to a new file. store: where states are, if not where the platform was last started with.

    with_store: False for an object store that is copied by other means. going_on: gets what is being done. Raises
    UnavailableError where there is no platform's state, and what its parts raise.
    """
    place = database_place(state)
    if not state.audit_key.exists() or (isinstance(place, Path) and not place.exists()):
        raise UnavailableError(f"there is no platform's state in {str(state.path)!r}; `cenote up` makes it")
    url = store or kept_store_url(state)
    states = StateLocations(url, state.store)
    header = BackupHeader(
        cenote=version("cenote"),
        made=time.time(),
        schema=len(MIGRATIONS),
        with_store=with_store and bool(url),
    )
    with Database(place) as database, BackupWriter(path, header) as writer:
        going_on("copying keys")
        early = _secrets(state)  # a job that ends meanwhile has a record and no keys
        going_on("copying records")
        runtimes = _add_records(database, writer)
        for name, content in (early | _secrets(state)).items():
            writer.add(f"state/{name}", content)
        stored, without = 0, list[_Runtime]()
        for number, runtime in enumerate(runtimes, start=1):
            going_on(f"copying states, runtime {number} of {len(runtimes)}")
            found = header.with_store and _add_states(states, runtime, writer)
            _add_record(states, runtime, writer)
            stored += found
            if header.with_store and runtime.in_store and not found:
                without.append(runtime)
        going_on("copying the audit log")
        head = START
        if state.audit.exists():
            add = partial(_add_below, writer, "audit")
            head = copy_log(state.audit, read_secret_file(state.audit_key), add)
        there = {row["id"] for row in database.rows("SELECT id FROM runtimes")}
        removed = {runtime.id for runtime in without} - there
        going_on("writing the file to the disk")
        size = writer.publish(frozenset(removed))
        facts: Facts = {"bytes": size, "runtimes": len(runtimes), "entries": head.number}
        Notices(database).leave(AuditEvent(kind="platform.backed_up", facts=facts))
        return BackupReport(
            path=str(path),
            size=size,
            tenants=len(database.rows("SELECT id FROM tenants")),
            runtimes=len(runtimes) - len(removed),
            stored=stored,
            entries=head.number,
            without_state=tuple(sorted(one.name for one in without if one.id not in removed)),
        )


def _add_below(writer: BackupWriter, folder: str, name: str, file: IO[bytes], size: int) -> None:
    writer.add_file(f"{folder}/{name}", file, size)


def _add_records(database: Database, writer: BackupWriter) -> list[_Runtime]:
    with database.snapshot():
        for table in TABLES:
            with tempfile.SpooledTemporaryFile(_SPOOL, prefix="cenote-") as spool:
                for line in dump(database, table):
                    spool.write(line)
                size = spool.tell()
                spool.seek(0)
                writer.add_file(f"records/{table}.jsonl", spool, size)
        rows = database.rows("SELECT tenant_id, id, name, durable, made FROM runtimes ORDER BY tenant_id, id")
        return [
            _Runtime(
                tenant=TenantId(row["tenant_id"]),
                id=RuntimeId(row["id"]),
                name=row["name"],
                in_store=bool(row["durable"]) and row["made"] is not None,
            )
            for row in rows
        ]


def _add_states(states: StateLocations, runtime: _Runtime, writer: BackupWriter) -> bool:
    """Whether there is anything of the runtime in the store."""
    store = states.checkpoints(runtime.tenant)
    if store is None:
        return False
    folder = store.folder(runtime.id)
    if not folder.was_claimed():
        return False
    below = f"store/{runtime.tenant}/{runtime.id}"
    writer.add(f"{below}/{CLAIMED}", b"")
    copy_checkpoints(
        folder, lambda number, file, size: writer.add_file(f"{below}/{number:012d}.checkpoint", file, size)
    )
    return True


def _add_record(states: StateLocations, runtime: _Runtime, writer: BackupWriter) -> None:
    """After the states, so that it has all of their steps. Readers cut off an entry that is incomplete."""
    path = states.record_file(runtime.tenant, runtime.id)
    if path is None:
        return
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        name = f"store/{runtime.tenant}/{runtime.id}/history"
        writer.add_file(name, file, os.fstat(file.fileno()).st_size)


def _secrets(state: StateFolder) -> dict[str, bytes]:
    """The keys and certificates of the platform, its teams and its jobs, by their paths in the folder."""
    found = {}
    for path in _files(state.audit_key, state.master_key, state.certificates, state.teams, state.jobs):
        try:
            found[str(path.relative_to(state.path))] = path.read_bytes()
        except FileNotFoundError:  # its job has ended just now
            continue
    return found


def _files(*paths: Path) -> Iterable[Path]:
    for path in paths:
        for one in (path, *path.rglob("*")) if path.is_dir() else (path,):
            if one.is_file() and not one.name.startswith("."):
                yield one
