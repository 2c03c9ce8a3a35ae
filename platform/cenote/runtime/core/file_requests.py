"""Requests about a jail's working directory, and what their outcomes mean. No I/O: both faces share it."""

from __future__ import annotations

import os
from dataclasses import replace

from cenote.runtime.core.replies import done
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import FileRefusedError, JailError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import printable
from cenote_worker.execution.results import FileInfo, FolderListing
from cenote_worker.runtime.jail_requests import WorkdirRequest
from cenote_worker.supervisor.frame_parser import MAX_ENTRIES, FileReply, FolderReply
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.transport.content import Content

FilePath = str | bytes | os.PathLike[str]
"""A path below the working directory, relative to it. Bytes name files whose names are no text."""

MAX_OFFSET = 2**63 - 1
"""Of the kernel's own offsets."""

MAX_PATH = 4_095
"""Bytes: PATH_MAX without its end."""


def most_bytes(policy: SandboxPolicy) -> int:
    """Bytes of one transfer: what the working directory may hold, and travels as memory."""
    return min(policy.disk_bytes, 2 * policy.memory_bytes)


def listing(path: FilePath) -> WorkdirRequest:
    ask = _ask(RequestKind.LOOK_UP_FILES, jail_pb2.FileRequest.LIST, path)
    ask.message.limit = MAX_ENTRIES
    return ask


def looking_up(path: FilePath) -> WorkdirRequest:
    return _ask(RequestKind.LOOK_UP_FILES, jail_pb2.FileRequest.STAT, path)


def deleting(path: FilePath) -> WorkdirRequest:
    return _ask(RequestKind.CHANGE_FILE, jail_pb2.FileRequest.DELETE, path)


def reading(path: FilePath, offset: int, size: int | None, policy: SandboxPolicy) -> WorkdirRequest:
    ask = _ask(RequestKind.READ_FILE, jail_pb2.FileRequest.READ, path)
    most = most_bytes(policy)
    if not 0 <= offset <= MAX_OFFSET or (size is not None and not 0 <= size <= most):
        raise UsageError(f"offset and size must not be negative, and size at most {most} bytes by the policy")
    ask.message.offset, ask.message.ranged = offset, size is not None
    ask.message.limit = most if size is None else size
    return ask


def writing(path: FilePath, content: Content, policy: SandboxPolicy, *, overwrite: bool) -> WorkdirRequest:
    """Takes over the content, whatever happens."""
    try:
        ask = _ask(RequestKind.CHANGE_FILE, jail_pb2.FileRequest.WRITE, path)
        most = most_bytes(policy)
        if content.size > most:
            raise FileRefusedError(ask.shown, f"{content.size} bytes; the policy lets {most} in at once")
    except BaseException:
        content.close()
        raise
    ask.message.overwrite = overwrite
    return replace(ask, content=content)


def listed(outcome: Outcome, ask: WorkdirRequest) -> FolderListing:
    reply = _folder(outcome, ask)
    return FolderListing(entries=reply.entries, complete=not reply.cut)


def looked_up(outcome: Outcome, ask: WorkdirRequest) -> FileInfo:
    entries = _folder(outcome, ask).entries
    if len(entries) != 1:
        raise JailError(f"the runtime described {ask.shown!r} as {len(entries)} entries")
    return entries[0]


def content_read(outcome: Outcome, ask: WorkdirRequest) -> Content:
    """The bytes of a file, and never more than were asked for; the caller closes them."""
    reply = done(outcome, ask.shown)
    if not isinstance(reply, FileReply):
        raise JailError(f"the runtime gave no content of {ask.shown!r}")
    if reply.content.size > ask.message.limit:
        reply.content.close()
        raise JailError(f"the runtime gave more of {ask.shown!r} than was asked for")
    return reply.content


def _folder(outcome: Outcome, ask: WorkdirRequest) -> FolderReply:
    reply = done(outcome, ask.shown)
    if not isinstance(reply, FolderReply):
        raise JailError(f"the runtime gave no entries of {ask.shown!r}")
    return reply


def content(data: bytes | str) -> Content:
    """What a file is to hold; text as UTF-8. Raises UsageError for what is neither, or no UTF-8."""
    if not isinstance(data, str | bytes | bytearray | memoryview):
        raise UsageError(f"a file is written from bytes or text, not {type(data).__name__}")
    try:
        return Content.of_bytes(data.encode() if isinstance(data, str) else data)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the text has a lone surrogate, {data[error.start]!a}, at {error.start}; encode it yourself, such as "
            "with errors='surrogateescape', and give the bytes"
        ) from None


def _ask(
    kind: RequestKind, operation: jail_pb2.FileRequest.Operation.ValueType, path: FilePath
) -> WorkdirRequest:
    raw = _checked(path)
    message = jail_pb2.FileRequest(operation=operation, path=raw)
    return WorkdirRequest(kind, message, printable(raw.decode("utf-8", "backslashreplace")))


def _checked(path: FilePath) -> bytes:
    if not isinstance(path, str | bytes | os.PathLike):
        raise UsageError(f"a path is a text, bytes or a pathlib.PurePath, not {type(path).__name__}")
    path = os.fspath(path)
    try:
        raw = path.encode() if isinstance(path, str) else path
    except UnicodeEncodeError:
        raise UsageError(f"not text: {path!a}; give a name that is no text as bytes") from None
    if raw.startswith(b"/") or b".." in raw.split(b"/"):
        raise UsageError(
            f"{path!r} is not below the working directory; give a relative path without '..', or an absolute one"
        )
    if b"\0" in raw or len(raw) > MAX_PATH:
        raise UsageError(f"a path has no zero byte and at most {MAX_PATH} bytes")
    return raw
