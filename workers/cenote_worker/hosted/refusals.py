"""What a jail refused, as the error that its caller gets."""

from __future__ import annotations

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import (
    CenoteError,
    FileRefusedError,
    FileTakenError,
    JailError,
    NameExistsError,
    NotTransferableError,
    UnknownFileError,
    UnknownNameError,
    UnsafeValueError,
)
from cenote_security.printable import printable
from cenote_security.values.plain_json import NotPlainError
from cenote_worker.supervisor.edge import RefusedReply


def as_error(refused: RefusedReply, name: str) -> CenoteError:
    """The error for a refusal; `name` is what the caller asked about. The texts are the jail's: never trusted."""
    match refused.kind:
        case jail_pb2.Refusal.UNKNOWN_NAME:
            return UnknownNameError(refused.name, refused.nearest)
        case jail_pb2.Refusal.NAME_EXISTS:
            return NameExistsError(refused.name)
        case jail_pb2.Refusal.UNSAFE_VALUE:
            return UnsafeValueError(refused.name, refused.message)
        case jail_pb2.Refusal.NOT_PLAIN:
            return NotPlainError(printable(refused.message))
        case jail_pb2.Refusal.NOT_TRANSFERABLE:
            return NotTransferableError(refused.name or name, refused.message)
        case jail_pb2.Refusal.NO_FILE:
            return UnknownFileError(name)
        case jail_pb2.Refusal.FILE_EXISTS:
            return FileTakenError(name)
        case jail_pb2.Refusal.FILE_REFUSED:
            return FileRefusedError(name, printable(refused.message))
    return JailError(f"{name!r}: {refused.message}")
