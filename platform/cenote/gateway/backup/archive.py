"""The file of a backup: a tar archive whose last member has the size and the digest of each other one.

    backup.json                               what it is: format, version, schema
    records/<table>.jsonl                     rows of the database, one object a line
    state/<path>                              keys and certificates, as in the state folder
    audit/<file>                              the audit log up to its head
    store/<tenant>/<runtime>/<file>           checkpoints and the record of a runtime
    sums.json                                 written last: a file without it is incomplete

A reader takes nothing but regular members of these names. The digests reveal damage, not a forger: the file holds
the keys of the platform, and its place must be as safe as they are.

Both databases can be filled from the rows, so a backup of a platform with a file can be restored into PostgreSQL,
and the other way round.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Self

from cenote.gateway.store.database import Database
from cenote.gateway.store.schema import TABLES
from cenote.gateway.store.session import Value
from cenote_security.auth.secret_files import sync_folder
from cenote_security.errors import MalformedValueError, RejectedError, UnavailableError, UsageError

FORMAT: Final = 1

HEADER: Final = "backup.json"
SUMS: Final = "sums.json"
MEMBER: Final = re.compile(
    r"records/[a-z_]{1,40}\.jsonl"
    r"|state/(?!\.)[\w.-]{1,100}(?:/(?!\.)[\w.-]{1,100}){0,3}"
    r"|audit/(?:head|base|\d{16}\.jsonl)"
    r"|store/[\w-]{1,100}/[\w-]{1,100}/(?:claimed|history|\d{12}\.checkpoint)"
)
"""Names of members besides the two above. No part of one begins with a dot, so none leads out of a folder."""

_MAX_JSON: Final = 2**30
"""Bytes of a header or of the sums: some hundred for each member."""

_PIECE: Final = 2**20

Pieces = Iterator[bytes]


class BadBackupError(RejectedError):
    """A file is no backup that can be restored: damaged, incomplete, or of a version that this one does not read."""

    def __init__(self, path: Path, reason: str, remedy: str = "take another backup") -> None:
        super().__init__(path, reason, remedy)
        self.path = path
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{str(self.path)!r} cannot be restored: {self.reason}; {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupHeader:
    """What a backup is. made: seconds since the epoch. schema: of the records. with_store: whether it has states."""

    cenote: str
    made: float
    schema: int
    with_store: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSums:
    """left_out: runtimes whose records are in the backup and that were removed before their states were copied."""

    left_out: frozenset[str]
    members: Mapping[str, tuple[int, str]]
    """Size and SHA-256 of each."""


class BackupWriter:
    """Writes a backup beside its place; `publish` puts it there, whole and on the disk."""

    def __init__(self, path: Path, header: BackupHeader) -> None:
        """Raises UsageError where there is a file already, UnavailableError where none can be made."""
        self._path = path
        self._part = path.with_name(f".{path.name}.part")
        self._sums: dict[str, tuple[int, str]] = {}
        if path.exists():
            raise UsageError(f"{str(path)!r} exists already; name another file, or remove it first")
        with ExitStack() as opened, _explained(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = opened.enter_context(open(os.open(self._part, flags, 0o600), "wb"))
            os.fchmod(self._file.fileno(), 0o600)
            opened.callback(self._discard)
            self._tar = opened.enter_context(
                tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)
            )
            self.add(HEADER, json.dumps({"format": FORMAT, **_facts(header)}).encode())
            self._opened = opened.pop_all()

    def add(self, name: str, content: bytes) -> None:
        """Raises UnavailableError, as do the other methods."""
        self.add_pieces(name, len(content), iter((content,)))

    def add_file(self, name: str, file: IO[bytes], size: int) -> None:
        """The first `size` bytes, from where the file stands."""
        self.add_pieces(name, size, _pieces(file, size))

    def add_pieces(self, name: str, size: int, pieces: Pieces) -> None:
        """Raises UnavailableError also for fewer or more bytes than `size`."""
        if name in self._sums or not (MEMBER.fullmatch(name) or name == HEADER):
            raise UsageError(f"{name!r:.300} cannot be a member of a backup")
        summed = _Summed(pieces)
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, 0o600
        with _explained(self._path):
            self._tar.addfile(member, summed)
        if summed.size != size or summed.read(1):
            raise UnavailableError(f"{name!r} changed while it was copied; take the backup again")
        self._sums[name] = (size, summed.digest.hexdigest())

    def publish(self, left_out: frozenset[str] = frozenset()) -> int:
        """Ends the file. Returns its size. Raises UsageError where another file has come meanwhile."""
        content = json.dumps({"left_out": sorted(left_out), "members": self._sums}).encode()
        member = tarfile.TarInfo(SUMS)
        member.size, member.mode = len(content), 0o600
        with _explained(self._path):
            self._tar.addfile(member, io.BytesIO(content))
            self._tar.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            try:
                os.link(self._part, self._path)
            except FileExistsError:
                raise UsageError(f"{str(self._path)!r} exists already; name another file") from None
            size = self._path.stat().st_size
            sync_folder(self._path.absolute().parent)
        return size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _discard(self) -> None:
        with suppress(OSError):
            self._part.unlink(missing_ok=True)


class BackupReader:
    """Reads a backup from its beginning to its end, twice: `check` comes before anything is made of it."""

    def __init__(self, path: Path) -> None:
        """Raises BadBackupError, UnavailableError for a file that cannot be read."""
        self.path = path
        for name, content in self._members():
            if name != HEADER:
                break
            self.header = self._header(content)
            return
        raise BadBackupError(
            path, "it is no backup of a platform", "name a file that `cenote backup` has made"
        )

    def check(self, went_on: Callable[[int], None] = lambda _: None) -> BackupSums:
        """Reads all of it, and compares. went_on: gets the number of bytes so far. Raises BadBackupError."""
        found: dict[str, tuple[int, str]] = {}
        done, sums = 0, None
        for name, content in self._members():
            if sums is not None or name in found:
                raise BadBackupError(self.path, f"{name!r:.100} is in it twice, or after its end")
            if name == SUMS:
                sums = self._sums(content)
                continue
            summed = _Summed(_pieces(content))
            with _explained(self.path, "read"):
                while piece := summed.read(_PIECE):
                    done += len(piece)
                    went_on(done)
            found[name] = (summed.size, summed.digest.hexdigest())
        if sums is None:
            raise BadBackupError(self.path, "it is incomplete")
        for name in sums.members.keys() | found.keys():
            if found.get(name) != sums.members.get(name):
                raise BadBackupError(self.path, f"{name!r:.100} is damaged")
        return sums

    def members(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Each member between the header and the sums, in order; to be read before the next one is asked for."""
        for name, content in self._members():
            if name not in (HEADER, SUMS):
                yield name, content

    def _members(self) -> Iterator[tuple[str, IO[bytes]]]:
        with _explained(self.path, "read"), tarfile.open(self.path, "r:") as tar:
            for member in tar:
                tar.members = []  # type: ignore[attr-defined]  # else it remembers each
                known = member.name in (HEADER, SUMS) or MEMBER.fullmatch(member.name)
                content = tar.extractfile(member) if member.isreg() else None
                if content is None or not known:
                    raise BadBackupError(self.path, f"{member.name!r:.100} has no place in a backup")
                yield member.name, content

    def _header(self, content: IO[bytes]) -> BackupHeader:
        found = self._json(content)
        version = found.get("format")
        if version != FORMAT:
            raise BadBackupError(
                self.path,
                f"it has format {version!r:.20}, and this version of Cenote reads {FORMAT}",
                f"use the version that made it ({found.get('cenote', 'not known')!r:.20})",
            )
        match found:
            case {
                "cenote": str(cenote),
                "made": float(made),
                "schema": int(schema),
                "with_store": bool(store),
            }:
                return BackupHeader(cenote=cenote, made=made, schema=schema, with_store=store)
        raise BadBackupError(self.path, "its header cannot be read")

    def _sums(self, content: IO[bytes]) -> BackupSums:
        found = self._json(content)
        try:
            left_out = frozenset(str(one) for one in found["left_out"])
            members = {
                str(name): (int(size), str(digest)) for name, (size, digest) in found["members"].items()
            }
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BadBackupError(self.path, "its sums cannot be read") from None
        return BackupSums(left_out=left_out, members=members)

    def _json(self, content: IO[bytes]) -> dict[str, Any]:
        with _explained(self.path, "read"):
            text = content.read(_MAX_JSON)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise BadBackupError(self.path, "a part of it cannot be read") from None
        if not isinstance(found, dict):
            raise BadBackupError(self.path, "a part of it cannot be read")
        return found


class _Summed:
    """A file to read from pieces, which counts and digests what was read."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._rest = b""
        self.size = 0
        self.digest = hashlib.sha256()

    def read(self, size: int = 2**63, /) -> bytes:
        parts = list[bytes]()
        while size and (piece := self._rest or next(self._pieces, b"")):
            parts.append(piece[:size])
            size, self._rest = size - len(parts[-1]), piece[size:]
        read = b"".join(parts)
        self.size += len(read)
        self.digest.update(read)
        return read


def _pieces(file: IO[bytes], size: int | None = None) -> Pieces:
    while piece := file.read(_PIECE if size is None else min(_PIECE, size)):
        if size is not None:
            size -= len(piece)
        yield piece


def _facts(header: BackupHeader) -> dict[str, object]:
    return {
        "cenote": header.cenote,
        "made": header.made,
        "schema": header.schema,
        "with_store": header.with_store,
    }


@contextmanager
def _explained(path: Path, deed: str = "written") -> Iterator[None]:
    """Turns the errors of a file and of the archive in it into those of a backup."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"the backup {str(path)!r} cannot be {deed}: {error.strerror or error}"
        ) from None
    except (tarfile.TarError, EOFError) as error:
        raise BadBackupError(path, f"it is no whole archive ({error})") from None


_AT_ONCE: Final = 100
"""Rows of one question: some have results of some megabytes."""

_COLUMN: Final = re.compile(r"[a-z_]{1,40}")

Row = Mapping[str, Value]


def dump(database: Database, table: str) -> Iterator[bytes]:
    """A line for each row, in the order of the primary key."""
    key = TABLES[table]
    names, marks = ", ".join(key), ", ".join("?" * len(key))
    after, where = (), ""
    while True:
        sql = f"SELECT * FROM {table}{where} ORDER BY {names} LIMIT {_AT_ONCE}"  # noqa: S608  (names from here)
        rows = [{name: row[name] for name in row.keys()} for row in database.rows(sql, *after)]  # noqa: SIM118  (no mapping)
        for row in rows:
            yield json.dumps(row).encode() + b"\n"
        if len(rows) < _AT_ONCE:
            return
        after, where = tuple(rows[-1][name] for name in key), f" WHERE ({names}) > ({marks})"


def load(table: str, lines: IO[bytes], takes: Callable[[str, Row], bool]) -> Iterator[tuple[str, Row]]:
    """The rows of a table, for `FormerRows`. takes: which ones. Raises MalformedValueError."""
    if table not in TABLES:
        raise MalformedValueError(f"there is no table {table!r:.60}")
    for line in lines:
        row = _row(line)
        if takes(table, row):
            yield table, row


def _row(line: bytes) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedValueError("a row is no JSON") from None
    if not isinstance(row, dict) or not all(_COLUMN.fullmatch(name) for name in row):
        raise MalformedValueError("a row is no row of a table")
    if not all(type(value) in (str, int, float, type(None)) for value in row.values()):
        raise MalformedValueError("a row has a value that no column has")
    return row
