"""A whole state that has come into a fresh jail at once: whose parts lie where in its memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from cenote_proto.v1 import checkpoint_pb2
from cenote_worker import placed_parts
from cenote_worker.content import Content
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeState:
    """contents: of the regular ones among the files. groups: the names of each, and the parts of its pickle."""

    files: checkpoint_pb2.FileBatch
    contents: list[memoryview]
    process: list[memoryview]
    groups: list[tuple[list[str], list[memoryview]]]
    end: checkpoint_pb2.RestoreEnd

    @classmethod
    def opened(cls, state: memoryview, end: memoryview, memories: Sequence[Content]) -> Self:
        """Takes the memories over: that of the files, if they have any bytes, and that of all else."""
        message = checkpoint_pb2.State.FromString(bytes(state))
        regular = [file for file in message.files if file.kind == checkpoint_pb2.StoredFile.REGULAR]
        contents: list[memoryview] = []
        if regular:
            contents = placed_parts.views(memories[0], [file.content.size for file in regular])
        stored = [message.process, *message.groups]
        sizes = [part.size for group in stored for part in group.parts]
        parts = iter(placed_parts.views(memories[-1], sizes))
        process, *groups = [list(islice(parts, len(group.parts))) for group in stored]
        for memory in memories:
            memory.close()
        return cls(
            files=checkpoint_pb2.FileBatch(files=message.files),
            contents=contents,
            process=process,
            groups=[(list(group.names), found) for group, found in zip(message.groups, groups, strict=True)],
            end=checkpoint_pb2.RestoreEnd.FromString(bytes(end)),
        )
