"""Work on files by a process beside the namespace: what is asked, and what its answer means. No I/O.

A process has the walls of a cell, so a path means what it means there, and nothing is reached that a cell would not
reach. What it says was made by hostile code: it is bounded, and parsed into plain values.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

from cenote.runtime.core.file_requests import MAX_OFFSET, MAX_PATH, FilePath, most_bytes
from cenote.runtime.core.processes import ProcessResult
from cenote_security.errors import (
    FileRefusedError,
    FileTakenError,
    JailError,
    JailLostError,
    UnavailableError,
    UnknownFileError,
    UsageError,
)
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import printable
from cenote_worker.execution.programs import ProgramOrder, ProgramSpec
from cenote_worker.execution.results import FileInfo, FileKind, FolderListing
from cenote_worker.transport.content import Content

MOST_ENTRIES: Final = 100_000
MAX_DEPTH: Final = 64
MAX_ANSWER: Final = 64 * 2**20
"""Bytes of a listing."""

MAX_LINE: Final = 64 * 1024
"""Bytes of one entry, or one event."""

_KINDS: Final = frozenset(get_args(FileKind))

FileEventKind = Literal["created", "changed", "removed"]
_EVENTS: Final = frozenset(get_args(FileEventKind))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEvent:
    """Something has changed below a folder. raw: the path from there, as bytes, which hostile code chose."""

    kind: FileEventKind
    raw: bytes

    @property
    def path(self) -> str:
        """The same, safe to print."""
        return printable(self.raw.decode("utf-8", "backslashreplace"))


def is_absolute(path: FilePath) -> bool:
    """What is no path at all is left to the check of paths."""
    raw = os.fspath(path) if isinstance(path, str | bytes | os.PathLike) else ""
    return raw.startswith("/") if isinstance(raw, str) else raw.startswith(b"/")


# -- what is asked ----------------------------------------------------------------------------------------


def looking_up(path: FilePath, policy: SandboxPolicy) -> ProgramOrder:
    return _order(policy, op="stat", path=_checked(path))


def listing(path: FilePath, depth: int, limit: int, policy: SandboxPolicy) -> ProgramOrder:
    return _order(policy, op="list", path=_checked(path), depth=_depth(depth), limit=min(limit, MOST_ENTRIES))


def reading(path: FilePath, offset: int, size: int | None, policy: SandboxPolicy) -> ProgramOrder:
    """At most what a call may move, and a byte more, by which it is known that there is more."""
    most = most_bytes(policy)
    if not 0 <= offset <= MAX_OFFSET or (size is not None and not 0 <= size <= most):
        raise UsageError(f"offset and size must not be negative, and size at most {most} bytes by the policy")
    return _order(
        policy, op="read", path=_checked(path), offset=offset, size=most + 1 if size is None else size
    )


def streaming(path: FilePath, policy: SandboxPolicy) -> ProgramOrder:
    """All of it, however long it takes."""
    return _order(policy, timed=False, op="read", path=_checked(path), offset=0)


def writing(
    path: FilePath, policy: SandboxPolicy, *, overwrite: bool, size: int | None = None
) -> ProgramOrder:
    """size: of what will come, if that is known."""
    checked, timed = _checked(path), size is not None
    work = {"op": "write", "path": checked, "overwrite": overwrite, "size": size}
    return _order(policy, f"files: write {_shown(path)}", has_input=True, timed=timed, **work)


def making(path: FilePath, policy: SandboxPolicy, *, exist_ok: bool) -> ProgramOrder:
    checked = _checked(path)
    return _order(policy, f"files: mkdir {_shown(path)}", op="mkdir", path=checked, exist_ok=exist_ok)


def moving(path: FilePath, to: FilePath, policy: SandboxPolicy, *, overwrite: bool) -> ProgramOrder:
    source, target = _checked(path), _checked(to)
    shown = f"files: move {_shown(path)} to {_shown(to)}"
    return _order(policy, shown, op="move", path=source, to=target, overwrite=overwrite)


def removing(path: FilePath, policy: SandboxPolicy, *, recursive: bool) -> ProgramOrder:
    checked = _checked(path)
    return _order(policy, f"files: remove {_shown(path)}", op="remove", path=checked, recursive=recursive)


def watching(path: FilePath, depth: int, every: float, policy: SandboxPolicy) -> ProgramOrder:
    if isinstance(every, bool) or not isinstance(every, int | float) or not 0.01 <= every <= 3600:
        raise UsageError("a folder is looked at every 0.01 to 3,600 seconds")
    checked, milliseconds = _checked(path), int(every * 1000)
    return _order(policy, timed=False, op="watch", path=checked, depth=_depth(depth), every_ms=milliseconds)


def _order(
    policy: SandboxPolicy, shown: str = "", *, has_input: bool = False, timed: bool = True, **work: object
) -> ProgramOrder:
    """shown: of what changes something. timed: whether it may take no longer than any call."""
    return ProgramOrder(
        spec=ProgramSpec(files=work),
        has_input=has_input,
        timeout=policy.call_seconds if timed else None,
        shown=shown,
    )


def _depth(depth: int) -> int:
    if isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth <= MAX_DEPTH:
        raise UsageError(f"a depth is a number from 1 to {MAX_DEPTH}, not {depth!r:.100}")
    return depth


def _checked(path: FilePath) -> str:
    if not isinstance(path, str | bytes | os.PathLike):
        raise UsageError(f"a path is a text, bytes or a pathlib.PurePath, not {type(path).__name__}")
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise UsageError(f"not text: {os.fspath(path)!a}; give a name that is no text as bytes") from None
    if b"\0" in raw or len(raw) > MAX_PATH:
        raise UsageError(f"a path has no zero byte and at most {MAX_PATH} bytes")
    return os.fsdecode(raw)


def _shown(path: FilePath) -> str:
    return printable(os.fsencode(path).decode("utf-8", "backslashreplace"))[:1_000]


# -- what the answer means --------------------------------------------------------------------------------


def kept(asked: ProgramOrder, policy: SandboxPolicy) -> int:
    """Bytes of an answer that are looked at."""
    is_content = asked.spec.files is not None and asked.spec.files.get("op") == "read"
    return 2 * (most_bytes(policy) + 1) if is_content else MAX_ANSWER


def taken(content: Content, path: FilePath, policy: SandboxPolicy) -> bytes:
    """What a file is to hold. Takes the content over. Raises FileRefusedError."""
    try:
        if content.size > (most := most_bytes(policy)):
            raise FileRefusedError(_shown(path), f"{content.size} bytes; the policy lets {most} in at once")
        return content.whole()
    finally:
        content.close()


def done(result: ProcessResult, path: FilePath, *, stopped: bool = False) -> bytes:
    """What it gave. Raises why it could not be done. stopped: it was ended because enough had come."""
    if result.exit_code == 0 or stopped:
        return result.stdout_bytes
    shown = _shown(path)
    if result.exit_code is None:
        if result.killed_by == "timeout":
            raise UnavailableError(
                f"work on {shown!r} took longer than a call may (SandboxPolicy.call_timeout)"
            )
        raise JailLostError(f"work on {shown!r} was ended with its process ({result.killed_by})")
    raise _refusal(result.stderr_bytes, shown)


def _refusal(said: bytes, shown: str) -> Exception:
    try:
        found = json.loads(said)
        code, text = int(found["errno"]), printable(str(found["text"]))[:200]
    except (ValueError, TypeError, KeyError, RecursionError):
        words = printable(said.decode(errors="replace"))[-300:]
        return JailError(f"the runtime's process could not work on {shown!r}: {words}")
    if code == errno.ENOENT:
        return UnknownFileError(shown)
    if code == errno.EEXIST:
        return FileTakenError(shown)
    return FileRefusedError(shown, text)


def looked_up(result: ProcessResult, path: FilePath) -> FileInfo:
    entries = _entries(done(result, path))
    if len(entries.entries) != 1:
        raise JailError(f"the runtime described {_shown(path)!r} as {len(entries)} entries")
    return entries.entries[0]


def listed(result: ProcessResult, path: FilePath) -> FolderListing:
    data = done(result, path)
    if result.omitted:
        raise FileRefusedError(_shown(path), "the listing is too long; list less of it")
    return _entries(data)


def content(result: ProcessResult, path: FilePath, asked: int | None, policy: SandboxPolicy) -> bytes:
    data = done(result, path)
    most = most_bytes(policy) if asked is None else asked
    if result.omitted or len(data) > most:
        raise FileRefusedError(
            _shown(path), f"it has more than {most} bytes; at most {most} are read at once, download it"
        )
    return data


def _entries(data: bytes) -> FolderListing:
    entries, complete = list[FileInfo](), True
    for line in data.splitlines():
        said = _parsed(line)
        if said.get("cut") is True:
            complete = False
        else:
            entries.append(_entry(said))
    return FolderListing(entries=tuple(entries), complete=complete)


def _entry(said: dict[str, object]) -> FileInfo:
    kind, size, modified, mode = (said.get(key) for key in ("kind", "size", "modified", "mode"))
    if kind not in _KINDS or not isinstance(size, int) or not isinstance(modified, int | float):
        raise JailError("the runtime described a file as none can be")
    return FileInfo(
        raw=_raw(said.get("name")),
        kind=kind,  # type: ignore[arg-type]  # it is one of them
        size=size,
        modified=float(modified),
        mode=mode & 0o7777 if isinstance(mode, int) else 0,
        target=printable(str(said.get("target") or ""))[:MAX_PATH],
    )


def event(line: bytes) -> FileEvent | None:
    """None for the first one, which says that later changes will be seen."""
    said = _parsed(line)
    kind = said.get("event")
    if kind == "ready":
        return None
    if kind not in _EVENTS:
        raise JailError("the runtime told of a change as there is none")
    return FileEvent(kind=kind, raw=_raw(said.get("name")))  # type: ignore[arg-type]  # it is one of them


class Lines:
    """Whole lines of what comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, data: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise JailError("the runtime's process says a line without an end")
        yield from lines


def _parsed(line: bytes) -> dict[str, object]:
    try:
        found = json.loads(line) if len(line) <= MAX_LINE else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise JailError("the runtime's process says of files what makes no sense")
    return found


def _raw(name: object) -> bytes:
    return os.fsencode(str(name)[:MAX_PATH])
