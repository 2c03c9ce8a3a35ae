"""Where the data that outlives runtimes' processes is stored: one store, with a part for each tenant."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from cenote.gateway.errors import StoreAwayError
from cenote.gateway.store.runtimes import RuntimeRecord
from cenote.gateway.store.state_folder import StateFolder
from cenote_security.auth.secret_files import read_secret_file, replace_file
from cenote_security.errors import SecretFileError, UnavailableError, UsageError
from cenote_security.ids import RuntimeId, TenantId
from cenote_worker.checkpoints.retention import NOTHING_STORED, Retention
from cenote_worker.checkpoints.store import CheckpointStore, is_local, local_root
from cenote_worker.runtime.state.storage import PLACE, RECORD, RuntimeStorage

MARK: Final = "cenote-store"
"""A file in a local store with an identity: an empty folder where a disk was mounted is another store."""


class StateLocations:
    """Locations of all runtimes. The gateway makes the names below a tenant's part: no tenant can name another's."""

    def __init__(self, store: str, records: Path | None = None, default: Retention = NOTHING_STORED) -> None:
        """store: a folder, or a URL for fsspec; empty where no store is reachable from all machines.

        records: a folder for runtimes' records, where the store is not a folder: objects in an object store cannot be
        appended to. None for none: records then end with the process that serves the runtime. default: for runtimes
        that specify no retention.
        """
        self._store = store.rstrip("/")
        self._records = local_root(store) if store and is_local(store) else records
        self._default = default if store else NOTHING_STORED
        self._marks: dict[Path, bytes] = {}
        """The identities of the local folders, when the platform started."""

    def check_store(self) -> None:
        """Checks the store when a platform starts, before its users see an error, and remembers which folder it is. A
        remote store is not contacted: it may be down for a while. Raises UsageError for an invalid store,
        UnavailableError for a folder that cannot be made.
        """
        if not is_local(self._store):
            CheckpointStore(self._store)
        for root in self._folders():
            try:
                root.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                self._marks[root] = _mark(root)
            except OSError as error:
                raise UnavailableError(
                    f"the store {str(root)!r} cannot be used: {error.strerror}; name another one with --store"
                ) from error

    def _folders(self) -> set[Path]:
        """The local ones, of states and of records."""
        store = {local_root(self._store)} if self._store and is_local(self._store) else set()
        return store if self._records is None else {*store, self._records}

    def _check_there(self) -> None:
        """Raises StoreAwayError if a local folder is not the one of the platform's start."""
        for root, mark in self._marks.items():
            if not root.is_dir():
                raise StoreAwayError(gone=True)
            try:
                found = (root / MARK).read_bytes()
            except FileNotFoundError:
                found = b""
            if found != mark:
                raise StoreAwayError(gone=False)

    def reached(self) -> Path | None:
        """Checks that the store answers. Returns its path if it is a folder; None if it is not one, or there is none.

        Raises StoreAwayError, and what the store's library raises.
        """
        self._check_there()
        if not self._store:
            return None
        CheckpointStore(self._store, PLACE).check()
        return local_root(self._store) if is_local(self._store) else None

    @property
    def folder(self) -> Path | None:
        """The store, if it is a folder."""
        return local_root(self._store) if self._store and is_local(self._store) else None

    def check(self, retention: Retention) -> None:
        """Raises UsageError where the requested retention is not available."""
        if not self._store and retention.stores:
            raise UsageError(
                "this platform has no store that all its machines reach, for runtimes that are durable or hibernate; "
                "its operator gives it one with `cenote up --store`"
            )

    def keeping(self, record: RuntimeRecord, *, partial: bool = False) -> RuntimeStorage:
        """Where the data of a runtime is stored, with the folders of its tenant. Raises StoreAwayError."""
        self._check_there()
        for root in self._folders():
            (root / record.tenant).mkdir(mode=0o700, parents=not self._marks, exist_ok=True)
        return self._storage(record, partial=partial)

    def _storage(self, record: RuntimeRecord, *, partial: bool = False) -> RuntimeStorage:
        return RuntimeStorage(
            store=self._store_of(record.tenant),
            records="" if self._records is None else str(self._records / record.tenant),
            **record.retention.or_else(self._default).changes(),
            partial=partial,
            known=record.made,
        )

    def step(self, record: RuntimeRecord) -> int:
        """The last step in the stored state of a runtime; 0 where nothing is stored. Raises CheckpointError."""
        store = CheckpointStore(self._store_of(record.tenant), PLACE)
        numbers = store.folder(record.id).numbers()
        return store.manifest(record.id).step if numbers else 0

    def checkpoints(self, tenant: TenantId) -> CheckpointStore | None:
        """The stored states of a tenant's runtimes; None where there is no store."""
        return CheckpointStore(self._store_of(tenant), PLACE) if self._store else None

    def record_file(self, tenant: TenantId, runtime: RuntimeId) -> Path | None:
        """The record of a runtime; None where records are in memory alone."""
        return None if self._records is None else self._records / tenant / runtime / RECORD

    def remove(self, record: RuntimeRecord) -> None:
        """Removes all data of a runtime that has ended. Raises StoreFailedError."""
        keeping = self._storage(record)
        used = {keeping.records, keeping.store if keeping.stores else ""}
        for place in used - {""}:
            CheckpointStore(place, PLACE).remove(record.id)

    def _store_of(self, tenant: TenantId) -> str:
        return f"{self._store}/{tenant}" if self._store else ""


def _mark(root: Path) -> bytes:
    """The identity of a folder, which gets one if it has none; empty where its disk is full, which health says."""
    with suppress(FileNotFoundError):
        return (root / MARK).read_bytes()
    mark = f"{secrets.token_hex(16)}\n".encode()
    try:
        replace_file(root / MARK, mark)
    except SecretFileError:
        return b""
    return mark


def keep_store_url(state: StateFolder, store: str) -> None:
    """Remembers the store of a platform that starts, for the operator's commands. store: empty for none."""
    replace_file(state.store_url, f"{store}\n".encode())


def kept_store_url(state: StateFolder) -> str:
    """The store of the platform here; empty where it has none. Before any was remembered, the folder here."""
    if not state.store_url.exists():
        return str(state.store)
    return read_secret_file(state.store_url).decode("utf-8", "replace").strip()
