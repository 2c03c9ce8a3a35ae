"""What a writer finds when it opens the log again: where to go on, and what its predecessor left unfinished.

An append is acknowledged once the head is signed. So what comes after the head, nobody was told of: whole entries are
kept, and everything from the first that is not whole is cut off. What a crash cannot explain is refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cenote.gateway.audit.chain import Mark, before
from cenote.gateway.audit.entry import BrokenLineError, Facts, parse_line
from cenote.gateway.audit.folder import log_files, read_lines
from cenote.gateway.audit.walk import Walk
from cenote.gateway.errors import AuditBrokenError


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """mark: the last good entry. path: the file to go on in, None for a log without files; size: its good bytes.

    unsigned: good entries after the head. dropped: what follows them and is not whole.
    """

    mark: Mark
    path: Path | None = None
    size: int = 0
    unsigned: int = 0
    dropped: bytes = b""

    @property
    def note(self) -> Facts | None:
        """What the log should say of it, None if there was nothing to recover."""
        if not self.unsigned and not self.dropped:
            return None
        return {
            "adopted_entries": self.unsigned,
            "dropped_bytes": len(self.dropped),
            "dropped_sha256": hashlib.sha256(self.dropped).hexdigest(),
        }


def recover(folder: Path, head: Mark) -> Recovery:
    """Reads the last file; older ones are for `verify`. Raises AuditBrokenError."""
    files = log_files(folder)
    if not files:
        if head.number:
            raise AuditBrokenError(folder, f"its files are missing, up to entry {head.number}")
        return Recovery(mark=head)
    path = files[-1]
    walk = Walk(_start(folder, path, head), [head])
    stop = walk.read(path)
    if walk.missing():
        where = (
            f"{path.name}, line {stop.line}: {stop.reason}" if stop else f"it ends before entry {head.number}"
        )
        raise AuditBrokenError(folder, where)
    size = stop.offset if stop else path.stat().st_size
    return Recovery(
        mark=walk.mark,
        path=path,
        size=size,
        unsigned=walk.mark.number - head.number,
        dropped=_rest(path, size),
    )


def _rest(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()


def _start(folder: Path, path: Path, head: Mark) -> Mark:
    """The entry before the file's first: as that one says, or the head if it is not whole."""
    first = next(read_lines(path), None)
    try:
        start = head if first is None else before(parse_line(first.content))
    except BrokenLineError:
        start = head
    if start.number != int(path.stem) - 1 or start.number > head.number:
        raise AuditBrokenError(folder, f"{path.name} does not continue what was signed")
    if start.number == head.number and start.hash != head.hash:
        raise AuditBrokenError(folder, f"the entry before {path.name} is not the one that was signed")
    return start
