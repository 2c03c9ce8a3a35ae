"""What a request other than a cell gives, as messages and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never, cast

from cenote_proto.scalars import utf8_text, utf8_texts
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker import traced
from cenote_worker.content import Content
from cenote_worker.results import FileInfo, FileKind
from cenote_worker.supervisor import edge
from cenote_worker.wire.contents import announce
from cenote_worker.wire.results import from_info

Reply = (
    edge.DoneReply
    | edge.ValueReply
    | edge.VariablesReply
    | edge.FolderReply
    | edge.FileReply
    | edge.KeptReply
    | edge.SurveyedReply
    | edge.VersionsReply
    | edge.RefusedReply
)

_KINDS: Final[Mapping[FileKind, jail_pb2.FileEntry.Kind.ValueType]] = {
    "other": jail_pb2.FileEntry.OTHER,
    "file": jail_pb2.FileEntry.FILE,
    "folder": jail_pb2.FileEntry.FOLDER,
    "link": jail_pb2.FileEntry.LINK,
}


def from_reply(reply: Reply) -> tuple[jail_pb2.Reply, Content | None]:
    """The message, and the content whose chunks have to follow it; the caller still owns the reply's content."""
    message = jail_pb2.Reply()
    follows: Content | None = None
    match reply:
        case edge.DoneReply():
            message.done.SetInParent()
            message.done.differing.extend(utf8_texts(reply.differing))
        case edge.ValueReply():
            message.value.info.CopyFrom(from_info(reply.info))
            follows = reply.content if announce(message.value.content, reply.content) else None
        case edge.FileReply():
            follows = reply.content if announce(message.file.content, reply.content) else None
        case edge.VariablesReply():
            message.variables.variables.extend(map(from_info, reply.variables))
        case edge.FolderReply():
            message.folder.entries.extend(map(_entry, reply.entries))
            message.folder.cut = reply.cut
        case edge.KeptReply():
            message.kept.step = reply.step
        case edge.SurveyedReply():
            message.surveyed.severed.extend(utf8_texts(reply.severed))
            message.surveyed.amiss.extend(utf8_texts(reply.amiss))
            message.surveyed.step = reply.step
        case edge.VersionsReply():
            traced.fill_versions(message.versioned, reply.versions)
        case edge.RefusedReply():
            message.refusal.name, message.refusal.message = utf8_text(reply.name), utf8_text(reply.message)
            message.refusal.kind = cast("jail_pb2.Refusal.Kind.ValueType", reply.kind)
            message.refusal.nearest.extend(utf8_texts(reply.nearest))
        case _:
            assert_never(reply)
    return message, follows


def payload_of(message: jail_pb2.Reply) -> jail_pb2.Payload | None:
    """What of the message announces content, if anything."""
    match message.WhichOneof("body"):
        case "value":
            return message.value.content
        case "file":
            return message.file.content
    return None


def to_reply(message: jail_pb2.Reply, content: Content | None) -> Reply:
    """The reply again. content: what `payload_of` announced, for the reply to own. Raises ProtocolViolation."""

    def attached(_payload: jail_pb2.Payload) -> Content:
        assert content is not None, "whoever reads a reply looks for its content first"
        return content

    reply = edge.read_reply(message, attached)
    if isinstance(reply, edge.ExecutedReply):
        raise ProtocolViolation("a cell's answer where a reply was expected")
    return reply


def _entry(info: FileInfo) -> jail_pb2.FileEntry:
    return jail_pb2.FileEntry(name=info.raw, kind=_KINDS[info.kind], size=info.size, modified=info.modified)
