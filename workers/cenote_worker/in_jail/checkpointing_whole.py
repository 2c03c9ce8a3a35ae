"""A whole state that has come into a fresh jail at once: whose parts lie where in its memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from cenote_proto.v1 import checkpoint_pb2
from cenote_worker import placed_parts
from cenote_worker.content import Content
from cenote_worker.in_jail.checkpointing_files import Entry, with_contents
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeState:
    """groups: the names of each, and the parts of its pickle."""

    files: list[Entry]
    process: list[memoryview]
    groups: list[tuple[list[str], list[memoryview]]]

    @classmethod
    def opened(cls, state: memoryview, memories: Sequence[Content]) -> Self:
        """Takes the memories over: that of the files, if they have any bytes, and that of all else."""
        message = checkpoint_pb2.State.FromString(bytes(state))
        stored = [message.process, *message.groups]
        sizes = [part.size for group in stored for part in group.parts]
        parts = iter(placed_parts.views(memories[-1], sizes))
        process, *groups = [list(islice(parts, len(group.parts))) for group in stored]
        files = _entries(message.files, memories[0])
        for memory in memories:
            memory.close()
        return cls(
            files=files,
            process=process,
            groups=[(list(group.names), found) for group, found in zip(message.groups, groups, strict=True)],
        )

    def given(self, places: checkpoint_pb2.RebuildGiven) -> Self:
        """These of its files and groups."""
        return type(self)(
            files=[self.files[place] for place in places.files],
            process=self.process,
            groups=[self.groups[place] for place in places.groups],
        )


def _entries(files: Sequence[checkpoint_pb2.StoredFile], memory: Content) -> list[Entry]:
    """memory: of the regular ones, if there are any."""
    sizes = [file.content.size for file in files if file.kind == checkpoint_pb2.StoredFile.REGULAR]
    return with_contents(files, placed_parts.views(memory, sizes) if sizes else ())
