"""Replies to requests, as messages and back: values, files, snapshots, rollbacks, checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, assert_never, cast

from cenote_proto.scalars import make, utf8_text, utf8_texts
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.checkpoints.store import CheckpointInfo
from cenote_worker.execution import messages
from cenote_worker.execution.results import FileInfo, FileKind, Rollback, SnapshotInfo
from cenote_worker.supervisor import frame_parser
from cenote_worker.transport.content import Content
from cenote_worker.wire.chunking import announce
from cenote_worker.wire.results import from_info

Reply = (
    frame_parser.DoneReply
    | frame_parser.ValueReply
    | frame_parser.VariablesReply
    | frame_parser.FolderReply
    | frame_parser.FileReply
    | frame_parser.KeptReply
    | frame_parser.SurveyedReply
    | frame_parser.VersionsReply
    | frame_parser.RefusedReply
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
        case frame_parser.DoneReply():
            message.done.SetInParent()
            message.done.differing.extend(utf8_texts(reply.differing))
        case frame_parser.ValueReply():
            message.value.info.CopyFrom(from_info(reply.info))
            follows = reply.content if announce(message.value.content, reply.content) else None
        case frame_parser.FileReply():
            follows = reply.content if announce(message.file.content, reply.content) else None
        case frame_parser.VariablesReply():
            message.variables.variables.extend(map(from_info, reply.variables))
        case frame_parser.FolderReply():
            message.folder.entries.extend(map(_entry, reply.entries))
            message.folder.cut = reply.cut
        case frame_parser.KeptReply():
            message.kept.step = reply.step
        case frame_parser.SurveyedReply():
            message.surveyed.severed.extend(utf8_texts(reply.severed))
            message.surveyed.amiss.extend(utf8_texts(reply.amiss))
            message.surveyed.step = reply.step
        case frame_parser.VersionsReply():
            messages.fill_versions(message.versioned, reply.versions)
        case frame_parser.RefusedReply():
            message.refusal.name, message.refusal.message = utf8_text(reply.name), utf8_text(reply.message)
            message.refusal.kind = cast("jail_pb2.Refusal.Kind.ValueType", reply.kind)
            message.refusal.nearest.extend(utf8_texts(reply.nearest))
        case _:
            assert_never(reply)
    return message, follows


def payload_of(message: jail_pb2.Reply) -> jail_pb2.Payload | None:
    """The field of the message that announces content, if any."""
    match message.WhichOneof("body"):
        case "value":
            return message.value.content
        case "file":
            return message.file.content
    return None


def to_reply(message: jail_pb2.Reply, content: Content | None) -> Reply:
    """The reply of a message. content: as announced by `payload_of`; the reply owns it. Raises ProtocolViolation."""

    def attached(_payload: jail_pb2.Payload) -> Content:
        assert content is not None, "a reader of a reply looks for its content first"
        return content

    reply = frame_parser.read_reply(message, attached)
    if isinstance(reply, frame_parser.ExecutedReply):
        raise ProtocolViolation("a cell's answer where a reply was expected")
    return reply


def _entry(info: FileInfo) -> jail_pb2.FileEntry:
    return jail_pb2.FileEntry(name=info.raw, kind=_KINDS[info.kind], size=info.size, modified=info.modified)


def from_rollback(rollback: Rollback) -> runtime_pb2.RolledBack:
    return make(
        runtime_pb2.RolledBack,
        step=rollback.step,
        severed=rollback.severed,
        unkept=rollback.unkept,
        amiss=rollback.amiss,
    )


def to_rollback(message: runtime_pb2.RolledBack) -> Rollback:
    return Rollback(
        step=message.step,
        severed=tuple(message.severed),
        unkept=message.unkept,
        amiss=tuple(message.amiss),
    )


def from_snapshots(kept: Iterable[SnapshotInfo]) -> runtime_pb2.Snapshots:
    states = [make(runtime_pb2.KeptState, step=one.step, label=one.label, memory=one.memory) for one in kept]
    return runtime_pb2.Snapshots(states=states)


def to_snapshots(message: runtime_pb2.Snapshots) -> tuple[SnapshotInfo, ...]:
    return tuple(SnapshotInfo(step=one.step, label=one.label, memory=one.memory) for one in message.states)


def from_checkpoint(made: CheckpointInfo) -> runtime_pb2.StateStored:
    return make(
        runtime_pb2.StateStored,
        number=made.number,
        label=made.label,
        step=made.step,
        made=made.made,
        size=made.size,
        stored=made.stored,
        complete=made.complete,
    )


def to_checkpoint(message: runtime_pb2.StateStored) -> CheckpointInfo:
    return CheckpointInfo(
        number=message.number,
        label=message.label,
        step=message.step,
        made=message.made,
        size=message.size,
        stored=message.stored,
        complete=message.complete,
    )
