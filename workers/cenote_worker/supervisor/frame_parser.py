"""The edge where a jail's packets become values: parsed once, checked once, frozen.

Code that uses these values may trust their shape, and nothing of their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from google.protobuf.message import DecodeError

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_security.printable import printable
from cenote_worker.execution import messages
from cenote_worker.execution.results import (
    MAX_ALONG,
    ErrorInfo,
    FileInfo,
    FileKind,
    KeptAs,
    MimeBundle,
    Notice,
    Span,
    StreamName,
    VariableInfo,
    to_kept_as,
)
from cenote_worker.execution.trace import Location, StepTrace, Version
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import Packet, check_field_count

MAX_REPLY = 16 * 2**20
"""Bytes of a reply that is too long for a packet: 16 MiB is some 50,000 described variables."""

MAX_FIELDS = 200_000
"""Variables and other parts of such a reply: each takes 100 bytes here and 5 µs, however short it is on the wire."""

MAX_NAME = 1_000
MAX_TEXT = 4_000
"""Characters of names and of descriptions: longer ones are cut, not refused; a user may have made them."""

MAX_DIMENSIONS = 64
"""numpy's own limit."""

_TEXTUAL = frozenset(("application/json", "application/javascript"))

MAX_ENTRIES = 10_000
"""Entries of one listed folder: under 3 MB of names, which fits a reply."""

MAX_FILE_NAME = 1_020
"""Bytes: four times what Linux' own file systems allow. No real file has a longer name, and cutting it would lie."""

MAX_SEVERED = 20
MAX_AMISS = 30
MAX_LINE = 500
"""Names of variables that a rollback has cut off."""

MAX_NOTICES = 20
MAX_AUTHOR = 100
"""Notices of one cell, and characters of an author's name, which the client has chosen and checked."""

_KINDS: dict[int, FileKind] = {
    jail_pb2.FileEntry.FILE: "file",
    jail_pb2.FileEntry.FOLDER: "folder",
    jail_pb2.FileEntry.LINK: "link",
}


@dataclass(frozen=True, slots=True)
class ReadyEvent:
    """The worker waits for requests."""


@dataclass(frozen=True, slots=True)
class OutputEvent:
    stream: StreamName
    text: str


@dataclass(frozen=True, slots=True)
class DisplayEvent:
    """id: see `Display` in jail.proto. clears: what came before is dropped, and nothing is displayed."""

    bundle: MimeBundle
    size: int
    id: str = ""
    clears: bool = False


@dataclass(frozen=True, slots=True)
class ExecutedReply:
    success: bool
    value: str | None
    error: ErrorInfo | None
    reply: str | None
    duration: float
    notices: tuple[Notice, ...] = ()
    trace: StepTrace | None = None
    unkept: str = ""
    kept_as: KeptAs = ""
    differing: tuple[str, ...] = ()
    unkeepable: str = ""
    given_up: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptReply:
    """A snapshot of the state was made. step: the one whose end it is."""

    step: int


@dataclass(frozen=True, slots=True)
class SurveyedReply:
    """step, severed, amiss: see Rollback."""

    severed: tuple[str, ...] = ()
    step: int = 0
    amiss: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DoneReply:
    """The request was carried out. along, found: of an injection, differing: of a restore, see Done in jail.proto."""

    along: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueReply:
    """A value in its safe encoding, or pickled; the receiver owns the content."""

    content: Content
    info: VariableInfo


@dataclass(frozen=True, slots=True)
class VariablesReply:
    variables: tuple[VariableInfo, ...]


@dataclass(frozen=True, slots=True)
class FolderReply:
    """Entries, at most as many as were requested; cut: there are more."""

    entries: tuple[FileInfo, ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class FileReply:
    """The bytes of a file; the receiver owns the content."""

    content: Content


@dataclass(frozen=True, slots=True)
class VersionsReply:
    """The versions of the requested locations, as far as they are known."""

    versions: Mapping[Location, Version]


@dataclass(frozen=True, slots=True)
class RefusedReply:
    """kind: one of jail_pb2.Refusal.Kind."""

    kind: int
    name: str
    message: str
    nearest: tuple[str, ...]


ReplyBody = (
    ExecutedReply
    | DoneReply
    | ValueReply
    | VariablesReply
    | FolderReply
    | FileReply
    | KeptReply
    | SurveyedReply
    | VersionsReply
    | RefusedReply
)


@dataclass(frozen=True, slots=True)
class ReplyEvent:
    id: int
    body: ReplyBody


JailEvent = ReadyEvent | OutputEvent | DisplayEvent | ReplyEvent


def parse(packet: Packet, *, display_limit: int, value_limit: int) -> JailEvent:
    """Parses a packet of a jail. Takes over the packet's descriptors, whatever happens.

    display_limit, value_limit: bytes of one displayed object, of one value. Raises ProtocolViolation.
    """
    descriptors = packet.descriptors
    try:
        event = _parse(_frame(packet.data), descriptors, display_limit, value_limit)
        if descriptors:
            discard(event)
            raise ProtocolViolation("a packet with descriptors that nothing in it names")
        return event
    finally:
        packet.close()


def discard(event: JailEvent) -> None:
    """Closes the content of an event that is not used."""
    if isinstance(event, ReplyEvent) and isinstance(event.body, ValueReply | FileReply):
        event.body.content.close()


def _frame(data: bytes) -> jail_pb2.WorkerFrame:
    try:
        return jail_pb2.WorkerFrame.FromString(data)
    except DecodeError:
        raise ProtocolViolation("a packet that is no frame") from None


def _parse(
    frame: jail_pb2.WorkerFrame, descriptors: list[int], display_limit: int, value_limit: int
) -> JailEvent:
    match frame.WhichOneof("body"):
        case "ready":
            return ReadyEvent()
        case "output":
            return OutputEvent("stderr" if frame.output.is_stderr else "stdout", frame.output.text)
        case "display":
            return _display(frame.display, descriptors, display_limit)
        case "reply":
            attached = partial(Content.from_wire, descriptors=descriptors, limit=value_limit)
            return ReplyEvent(frame.reply.id, read_reply(frame.reply, attached))
        case "oversized":
            return _oversized(frame.oversized, descriptors)
    raise ProtocolViolation("a frame without a body")


def _oversized(payload: jail_pb2.Payload, descriptors: list[int]) -> ReplyEvent:
    content = Content.from_wire(payload, descriptors, MAX_REPLY)
    try:
        inner = jail_pb2.WorkerFrame()
        if content.count == 1:
            inner = _frame(_few_fields(bytes(content.unpack()[0])))
    finally:
        content.close()
    if inner.WhichOneof("body") != "reply":
        raise ProtocolViolation("an oversized frame that is not a reply")
    nothing = partial(Content.from_wire, descriptors=[], limit=0)
    return ReplyEvent(inner.reply.id, read_reply(inner.reply, nothing))


def _few_fields(data: bytes) -> bytes:
    check_field_count(data, jail_pb2.WorkerFrame, MAX_FIELDS)
    return data


def _display(message: jail_pb2.Display, descriptors: list[int], limit: int) -> DisplayEvent:
    if message.clears:
        return DisplayEvent({}, 0, clears=True)
    content = Content.from_wire(message.content, descriptors, limit)
    try:
        if content.count != len(message.types):
            raise ProtocolViolation("a display with more or fewer parts than types")
        bundle: dict[str, str | bytes] = {}
        for mime, part in zip(message.types, content.unpack(), strict=True):
            raw = bytes(part)
            bundle[mime[:MAX_NAME]] = raw.decode("utf-8", "replace") if _is_text(mime) else raw
        return DisplayEvent(bundle, content.size, message.id[:MAX_NAME])
    finally:
        content.close()


def _is_text(mime: str) -> bool:
    return mime.startswith("text/") or mime in _TEXTUAL or mime.endswith(("+json", "+xml"))


def _done(message: jail_pb2.Done) -> DoneReply:
    if len(message.along) + len(message.found) > MAX_ALONG:
        raise ProtocolViolation("more classes than go along with any value")
    along, found = ([each[:MAX_NAME] for each in names] for names in (message.along, message.found))
    return DoneReply(tuple(along), tuple(found), _lines(message.differing))


def _lines(told: Sequence[str]) -> tuple[str, ...]:
    """Each is shown to people and to a model as a line of its own."""
    return tuple(printable(line[:MAX_LINE]) for line in told[:MAX_AMISS])


def read_reply(reply: jail_pb2.Reply, content_of: Callable[[jail_pb2.Payload], Content]) -> ReplyBody:
    """content_of: gives the content of a payload. Raises ProtocolViolation."""
    match reply.WhichOneof("body"):
        case "executed":
            return _executed(reply.executed)
        case "done":
            return _done(reply.done)
        case "value":
            return ValueReply(content_of(reply.value.content), read_info(reply.value.info))
        case "variables":
            return VariablesReply(tuple(read_info(info) for info in reply.variables.variables))
        case "folder":
            return _folder(reply.folder)
        case "file":
            return FileReply(content_of(reply.file.content))
        case "kept":
            return KeptReply(reply.kept.step)
        case "surveyed":
            names = reply.surveyed.severed[:MAX_SEVERED]
            severed = tuple(printable(name[:MAX_NAME]) for name in names)
            return SurveyedReply(severed, reply.surveyed.step, _lines(reply.surveyed.amiss))
        case "versioned":
            return VersionsReply(messages.read_versions(reply.versioned))
        case "refusal":
            refusal = reply.refusal
            return RefusedReply(
                refusal.kind,
                refusal.name[:MAX_NAME],
                refusal.message[:MAX_TEXT],
                tuple(printable(name[:MAX_NAME]) for name in refusal.nearest[:5]),
            )
    raise ProtocolViolation("a reply without a body")


def _executed(message: jail_pb2.Executed) -> ExecutedReply:
    return ExecutedReply(
        success=message.success,
        value=message.value if message.HasField("value") else None,
        error=_error_of_jail(message.error) if message.HasField("error") else None,
        reply=message.reply if message.HasField("reply") else None,
        duration=message.duration if 0 <= message.duration < math.inf else 0.0,
        notices=_notices(message) if message.notices else (),
        trace=messages.read_relayed_trace(message.trace) if message.HasField("trace") else None,
        unkept=printable(message.unkept[:MAX_TEXT]),
        kept_as=to_kept_as(message.kept_as),
        differing=_lines(message.differing) if message.differing else (),
        unkeepable=printable(message.unkeepable[:MAX_TEXT]),
        given_up=tuple(message.given_up),
    )


def _notices(message: jail_pb2.Executed) -> tuple[Notice, ...]:
    """Each is shown to a model as a line of its own, so their texts are cut to one line."""
    return tuple(
        Notice(
            name=printable(notice.name[:MAX_NAME]),
            author=printable(notice.author[:MAX_AUTHOR]),
            step=notice.step,
            deleted=notice.deleted,
        )
        for notice in message.notices[:MAX_NOTICES]
    )


def _error_of_jail(message: jail_pb2.CellError) -> ErrorInfo:
    """Drops a jail's claim that a failure was not caused by its own code."""
    error = replace(read_error(message), outside=False)
    return replace(error, reason="exception") if error.verdict.kind == "infrastructure" else error


def read_error(message: jail_pb2.CellError) -> ErrorInfo:
    """Bounded and printable: callers print it, and a model reads it."""
    span = None
    if len(message.span) == 4:
        line, column, end_line, end_column = message.span
        span = Span(line=line, column=column, end_line=end_line, end_column=end_column)
    return ErrorInfo(
        type=printable(message.type[:MAX_NAME]),
        message=printable(message.message, lines=True),
        traceback=printable(message.traceback, lines=True),
        span=span,
        reason=printable(message.reason[:MAX_NAME]) or "exception",
        outside=message.outside,
    )


def read_info(message: jail_pb2.VariableInfo) -> VariableInfo:
    """Bounded and printable, also from a jail."""
    return VariableInfo(
        name=printable(message.name[:MAX_NAME]),
        type=printable(message.type[:MAX_NAME]),
        shape=tuple(message.shape[:MAX_DIMENSIONS]) if message.has_shape else None,
        size=message.size,
        description=printable(message.description[:MAX_TEXT]),
    )


def _folder(message: jail_pb2.Folder) -> FolderReply:
    if len(message.entries) > MAX_ENTRIES:
        raise ProtocolViolation("a folder with more entries than were asked for")
    return FolderReply(tuple(_entry(entry) for entry in message.entries), message.cut)


def _entry(message: jail_pb2.FileEntry) -> FileInfo:
    if len(message.name) > MAX_FILE_NAME:
        raise ProtocolViolation("a file name that is too long")
    return FileInfo(
        raw=message.name,
        kind=_KINDS.get(message.kind, "other"),
        size=message.size,
        modified=message.modified if math.isfinite(message.modified) else 0.0,
    )
