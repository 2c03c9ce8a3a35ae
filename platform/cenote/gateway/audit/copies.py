"""A copy of the audit log, taken beside its writer: all entries up to its head, and nothing after."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

from cenote.gateway.audit.entries import SLOT_BYTES, BrokenLineError, Mark, head_slot, parse_line
from cenote.gateway.audit.folder import BASE, HEAD, log_files, read_lines
from cenote.gateway.audit.reader import stored_head
from cenote.gateway.errors import AuditBrokenError, AuditUnavailableError

_TRIES: Final = 5
"""Retention removes old files, a few times a day."""

Add = Callable[[str, IO[bytes], int], None]


def copy_log(folder: Path, key: bytes, add: Add) -> Mark:
    """add: gets the name, the open file and the size of each file of the copy. Returns the head.

    The head is read before the files, so that they have all that it has signed; the base after they were opened, so
    that they have all that it does not cover. Raises AuditBrokenError for a head that was not signed with this key,
    or whose entry is missing; AuditUnavailableError.
    """
    head = stored_head(folder, key)
    if head is None:
        raise AuditBrokenError(folder, "its head is missing, or was not signed with this key")
    with ExitStack() as opened:
        files = _opened(folder, head, opened)
        base = (folder / BASE).read_bytes() if (folder / BASE).exists() else b""
        for path, file in files[:-1]:
            add(path.name, file, os.fstat(file.fileno()).st_size)
        for path, file in files[-1:]:
            add(path.name, file, _end_of(head, path))
    for name, content in ((HEAD, head_slot(head, key).ljust(2 * SLOT_BYTES, b" ")), (BASE, base)):
        if content:
            add(name, io.BytesIO(content), len(content))
    return head


def _opened(folder: Path, head: Mark, opened: ExitStack) -> list[tuple[Path, IO[bytes]]]:
    for _ in range(_TRIES):
        with ExitStack() as files:
            try:
                found: list[tuple[Path, IO[bytes]]] = [
                    (path, files.enter_context(path.open("rb")))
                    for path in log_files(folder)
                    if int(path.stem) <= head.number
                ]
            except FileNotFoundError:
                continue
            opened.push(files.pop_all())
            return found
    raise AuditUnavailableError(folder, "its files are removed faster than they can be copied; try again")


def _end_of(head: Mark, path: Path) -> int:
    """Where the entry of the head ends in the last file."""
    for line in read_lines(path):
        try:
            entry = parse_line(line.content)
        except BrokenLineError as error:
            raise AuditBrokenError(path.parent, f"{path.name} at byte {line.offset}: {error}") from None
        if entry.number == head.number:
            return line.offset + len(line.content)
    raise AuditBrokenError(path.parent, f"{path.name} ends before entry {head.number}")
