"""One request about a working directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from cenote_proto.v1 import jail_pb2
from cenote_worker.content import Content
from cenote_worker.history.bounds import MAX_FILE
from cenote_worker.history.step import StepRecord
from cenote_worker.hosted.change import Change
from cenote_worker.supervisor.protocol import Ask


@dataclass(frozen=True, slots=True)
class FileAsk:
    """One request, ready to be sent; whoever takes it closes it.

    message: without its content. shown: the path, printable. content: of a file that is to be written.
    stands_for: the step that is done again by it; cause: what asked for that.
    """

    ask: Ask
    message: jail_pb2.FileRequest
    shown: str
    content: Content | None = None
    stands_for: StepRecord | None = None
    cause: str = ""

    @classmethod
    def written(cls, path: str, data: bytes) -> Self:
        """A file is to hold this, whatever is there."""
        message = jail_pb2.FileRequest(
            operation=jail_pb2.FileRequest.WRITE, path=path.encode(), overwrite=True
        )
        return cls(Ask.CHANGE_FILE, message, path, Content.of_bytes(data))

    @classmethod
    def removed(cls, path: str) -> Self:
        message = jail_pb2.FileRequest(operation=jail_pb2.FileRequest.DELETE, path=path.encode())
        return cls(Ask.CHANGE_FILE, message, path)

    def change(self) -> Change | None:
        """What is different when it has been carried out, if anything is. Before the content is closed."""
        if self.ask is not Ask.CHANGE_FILE:
            return None
        path = b"/".join(part for part in self.message.path.split(b"/") if part not in (b"", b"."))
        shown = path.decode("utf-8", "backslashreplace")
        plain = shown.isprintable() and shown.encode("utf-8", "replace") == path
        kept = self.content if plain and self.content is not None and self.content.size <= MAX_FILE else None
        return Change(
            kind="removal" if self.message.operation == jail_pb2.FileRequest.DELETE else "upload",
            names=(shown if plain else self.shown,),
            data=kept.whole() if kept is not None else None,
            unspeakable=not plain,
            stands_for=self.stands_for,
            cause=self.cause,
        )

    def close(self) -> None:
        if self.content is not None:
            self.content.close()
